// A call site's attributes in the form in which an XLA FFI handler reads them, made once and shared by all calls.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dtype.h"
#include "library/xla_ffi.h"

namespace ral {

class Attributes {
 public:
  Attributes() = default;
  Attributes(Attributes&&) = default;
  Attributes& operator=(Attributes&&) = default;

  // Names must come sorted: handlers search them. kind: "scalar" or "array", whose content is the elements as they lie in
  // memory, or "string", which has no dtype. Throws std::invalid_argument for another kind or dtype.
  void add(const std::string& name, const std::string& kind, const std::string& dtype, const std::string& content);
  void add_dictionary(const std::string& name, Attributes attributes);

  // Valid while this lives, wherever it is moved.
  XLA_FFI_Attrs view() const;

 private:
  // One attribute and all that its pointers refer to.
  struct Item {
    std::string name, content;
    XLA_FFI_ByteSpan name_span;
    XLA_FFI_Scalar scalar;
    XLA_FFI_Array array;
    XLA_FFI_ByteSpan string;
    std::unique_ptr<Attributes> dictionary;
    XLA_FFI_Attrs entries;
  };
  Item& add_item(const std::string& name, const std::string& content, XLA_FFI_AttrType type);

  std::vector<std::unique_ptr<Item>> items_;
  std::vector<XLA_FFI_AttrType> types_;
  std::vector<XLA_FFI_ByteSpan*> names_;
  std::vector<void*> values_;
};

// The value of the attribute of this name and type. Throws std::invalid_argument where there is none.
const void* attribute(const XLA_FFI_Attrs& attrs, std::string_view name, XLA_FFI_AttrType type);

}  // namespace ral
