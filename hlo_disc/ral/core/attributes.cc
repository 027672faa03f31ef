#include "attributes.h"

namespace ral {

Attributes::Item& Attributes::add(const std::string& name, const std::string& content, XLA_FFI_AttrType type) {
  items_.push_back(std::make_unique<Item>());
  Item& item = *items_.back();
  item.name = name;
  item.content = content;
  item.name_span = {item.name.data(), item.name.size()};
  types_.push_back(type);
  names_.push_back(&item.name_span);
  return item;
}

void Attributes::add_scalar(const std::string& name, const DType& dtype, const std::string& bytes) {
  Item& item = add(name, bytes, XLA_FFI_AttrType_SCALAR);
  item.scalar = {static_cast<XLA_FFI_DataType>(dtype.xla), item.content.data()};
  values_.push_back(&item.scalar);
}

void Attributes::add_array(const std::string& name, const DType& dtype, const std::string& bytes) {
  Item& item = add(name, bytes, XLA_FFI_AttrType_ARRAY);
  item.array = {static_cast<XLA_FFI_DataType>(dtype.xla), bytes.size() / static_cast<size_t>(dtype.bytes),
                item.content.data()};
  values_.push_back(&item.array);
}

void Attributes::add_string(const std::string& name, const std::string& text) {
  Item& item = add(name, text, XLA_FFI_AttrType_STRING);
  item.string = {item.content.data(), item.content.size()};
  values_.push_back(&item.string);
}

void Attributes::add_dictionary(const std::string& name, Attributes attributes) {
  Item& item = add(name, "", XLA_FFI_AttrType_DICTIONARY);
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

}  // namespace ral
