#include "library/lapack/lapack_call.h"

#include <algorithm>
#include <stdexcept>

namespace ral {
namespace {

const char* type_name(XLA_FFI_DataType type) {
  const DType* found = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                    [&](const DType& dtype) { return dtype.xla == static_cast<int32_t>(type); });
  return found == std::end(kDTypes) ? "of another kind" : found->name;
}

}  // namespace

void expect(bool holds, const char* text) {
  if (!holds) throw std::invalid_argument(text);
}

LapackCall::LapackCall(const XLA_FFI_CallFrame& frame, const char* form, const LapackTypes& types)
    : frame_(frame),
      function_(frame.ctx->function),
      operands_(static_cast<size_t>(frame.args.size)),
      has_info_(form[std::strlen(form) - 1] == 'I') {
  std::fill(std::begin(sizes_), std::end(sizes_), -1);
  for (int64_t i = 0; i < frame.args.size; i++)
    buffers_.push_back(static_cast<const XLA_FFI_Buffer*>(frame.args.args[i]));
  for (int64_t i = 0; i < frame.rets.size; i++)
    buffers_.push_back(static_cast<const XLA_FFI_Buffer*>(frame.rets.rets[i]));
  size_t buffer = 0;
  for (const char* at = form; *at;) {
    if (*at == '>') {
      expect(buffer == operands_, "it has another number of operands than LAPACK's routine");
      at++;
      continue;
    }
    const char kind = *at++;
    const size_t count = std::strcspn(at, "TRCI>");
    expect(buffer < buffers_.size(), "it has another number of operands and results than LAPACK's routine");
    check(buffer++, at, count,
          kind == 'T'   ? types.own
          : kind == 'R' ? types.real
          : kind == 'C' ? types.complex
                        : XLA_FFI_DataType_S32);
    at += count;
  }
  expect(buffer == buffers_.size(), "it has another number of results than LAPACK's routine");
}

int LapackCall::known(char letter) const {
  if (letter == 'q') return std::min(size('m'), size('n'));
  if (letter == 'p') return size('n') - 1;
  return size(letter);
}

void LapackCall::check(size_t buffer, const char* sizes, size_t count, XLA_FFI_DataType type) {
  const XLA_FFI_Buffer& x = *buffers_[buffer];
  const auto rank = static_cast<size_t>(x.rank);
  const bool is_operand = buffer < operands_;
  const std::string name =
      (is_operand ? "operand " : "result ") + std::to_string(buffer - (is_operand ? 0 : operands_));
  if (x.dtype != type)
    throw std::invalid_argument(name + " has type " + type_name(x.dtype) + ", and LAPACK's routine takes " +
                                type_name(type));
  const std::string shape = name + " has shape " + shape_text(x.dims, static_cast<int>(rank));
  if (rank < count) throw std::invalid_argument(shape + ", and LAPACK's routine takes more dimensions");
  int64_t step = 1;
  for (size_t i = 0; i < count; i++) {
    const int64_t found = x.dims[rank - count + i];
    if (found > INT_MAX) throw std::invalid_argument(shape + ", too large for LAPACK, whose integers have 32 bits");
    const int wanted = known(sizes[i]);
    if (wanted >= 0 && found != wanted)
      throw std::invalid_argument(shape + ", of which dimension " + std::to_string(rank - count + i) +
                                  " must have size " + std::to_string(wanted));
    sizes_[static_cast<unsigned char>(sizes[i])] = static_cast<int>(found);
    step *= found;
  }
  steps_.push_back(step);
  const XLA_FFI_Buffer& first = *buffers_[0];
  if (buffer == 0) {
    for (size_t i = 0; i < rank - count; i++) batch_ *= x.dims[i];
    batch_rank_ = rank - count;
  } else if (rank - count != batch_rank_ || !std::equal(x.dims, x.dims + batch_rank_, first.dims)) {
    throw std::invalid_argument(shape + ", which is not batched as " +
                                shape_text(first.dims, static_cast<int>(first.rank)));
  }
}

const void* LapackCall::scalar(const char* name, XLA_FFI_DataType type) const {
  const auto* found = static_cast<const XLA_FFI_Scalar*>(attribute(frame_.attrs, name, XLA_FFI_AttrType_SCALAR));
  if (found->dtype != type) throw std::invalid_argument(std::string("attribute ") + name + " has another type");
  return found->value;
}

char LapackCall::letter(const char* name, const char* allowed) const {
  const char found = *static_cast<const char*>(scalar(name, XLA_FFI_DataType_U8));
  if (!found || !std::strchr(allowed, found))
    throw std::invalid_argument(std::string("attribute ") + name + " is character " +
                                std::to_string(static_cast<unsigned char>(found)) + ", must be one of " + allowed);
  return found;
}

bool LapackCall::flag(const char* name) const { return *static_cast<const bool*>(scalar(name, XLA_FFI_DataType_PRED)); }

int LapackCall::number(const char* name) const {
  return *static_cast<const int32_t*>(scalar(name, XLA_FFI_DataType_S32));
}

}  // namespace ral
