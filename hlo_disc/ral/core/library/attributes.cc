#include "library/attributes.h"

#include <stdexcept>

namespace ral {

Attributes::Item& Attributes::add_item(const std::string& name, const std::string& content, XLA_FFI_AttrType type) {
  items_.push_back(std::make_unique<Item>());
  Item& item = *items_.back();
  item.name = name;
  item.content = content;
  item.name_span = {item.name.data(), item.name.size()};
  types_.push_back(type);
  names_.push_back(&item.name_span);
  return item;
}

void Attributes::add(const std::string& name, const std::string& kind, const std::string& dtype,
                     const std::string& content) {
  if (kind == "string") {
    Item& item = add_item(name, content, XLA_FFI_AttrType_STRING);
    item.string = {item.content.data(), item.content.size()};
    values_.push_back(&item.string);
    return;
  }
  if (kind != "scalar" && kind != "array") throw std::invalid_argument("an attribute is no " + kind);
  const DType& type = dtype_named(dtype);
  const auto xla = static_cast<XLA_FFI_DataType>(type.xla);
  if (kind == "scalar") {
    Item& item = add_item(name, content, XLA_FFI_AttrType_SCALAR);
    item.scalar = {xla, item.content.data()};
    values_.push_back(&item.scalar);
  } else {
    Item& item = add_item(name, content, XLA_FFI_AttrType_ARRAY);
    item.array = {xla, content.size() / static_cast<size_t>(type.bytes), item.content.data()};
    values_.push_back(&item.array);
  }
}

void Attributes::add_dictionary(const std::string& name, Attributes attributes) {
  Item& item = add_item(name, "", XLA_FFI_AttrType_DICTIONARY);
  item.dictionary = std::make_unique<Attributes>(std::move(attributes));
  item.entries = item.dictionary->view();
  values_.push_back(&item.entries);
}

XLA_FFI_Attrs Attributes::view() const {
  // The interface has no const: handlers only read.
  return {XLA_FFI_Attrs_STRUCT_SIZE,
          nullptr,
          static_cast<int64_t>(types_.size()),
          const_cast<XLA_FFI_AttrType*>(types_.data()),
          const_cast<XLA_FFI_ByteSpan**>(names_.data()),
          const_cast<void**>(values_.data())};
}

const void* attribute(const XLA_FFI_Attrs& attrs, std::string_view name, XLA_FFI_AttrType type) {
  for (int64_t i = 0; i < attrs.size; i++) {
    if (std::string_view(attrs.names[i]->ptr, attrs.names[i]->len) == name && attrs.types[i] == type)
      return attrs.attrs[i];
  }
  throw std::invalid_argument("there is no attribute " + std::string(name) + " of the type that it must have");
}

}  // namespace ral
