#include "memory/strided.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace ral {
namespace {

// A square of so many items is read and written while its lines are in the cache.
constexpr int64_t kTile = 32;

struct Axis {
  int64_t size, stride;  // in bytes
};

// With a constant number of bytes an item's copy is a load and a store.
template <int64_t kItem>
struct Copier {
  int64_t item;

  int64_t bytes() const { return kItem ? kItem : item; }

  void line(char* to, int64_t step, const char* from, int64_t size, int64_t stride) const {
    for (int64_t i = 0; i < size; i++) std::memcpy(to + i * step, from + i * stride, static_cast<size_t>(bytes()));
  }

  // Rows whose items are farther apart than the rows are.
  void turned(char* to, const char* from, const Axis& rows, const Axis& columns) const {
    const int64_t row = columns.size * bytes();
    for (int64_t i = 0; i < rows.size; i += kTile) {
      for (int64_t j = 0; j < columns.size; j += kTile) {
        const int64_t below = std::min(rows.size, i + kTile), most = std::min(columns.size - j, kTile);
        for (int64_t k = i; k < below; k++)
          line(to + k * row + j * bytes(), bytes(), from + k * rows.stride + j * columns.stride, most, columns.stride);
      }
    }
  }

  char* copy(char* to, const char* from, const Axis* axes, size_t rank) const {
    if (rank == 0) {
      line(to, 0, from, 1, 0);
      return to + bytes();
    }
    if (rank == 1) {
      line(to, bytes(), from, axes->size, axes->stride);
      return to + axes->size * bytes();
    }
    if (rank == 2 && std::abs(axes[0].stride) < std::abs(axes[1].stride)) {
      turned(to, from, axes[0], axes[1]);
      return to + axes[0].size * axes[1].size * bytes();
    }
    for (int64_t i = 0; i < axes->size; i++) to = copy(to, from + i * axes->stride, axes + 1, rank - 1);
    return to;
  }
};

}  // namespace

bool is_dense(const int64_t* sizes, const int64_t* strides, int rank) {
  if (!strides) return true;
  int64_t expected = 1;
  for (int i = rank - 1; i >= 0; i--) {
    if (sizes[i] == 0) return true;
    if (sizes[i] != 1 && strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

void copy_dense(void* to, const void* from, const int64_t* sizes, const int64_t* strides, int rank, int64_t item) {
  // The fewest axes: neighbours that one stride serves are one axis, and what lies together is one item.
  std::vector<Axis> axes;
  int64_t dense = item;  // the next stride of a tensor without strides
  for (int i = rank - 1; i >= 0; i--) {
    const int64_t stride = strides ? strides[i] * item : dense;
    if (sizes[i] == 0) return;
    dense *= sizes[i];
    if (sizes[i] == 1) continue;
    if (!axes.empty() && stride == axes.back().stride * axes.back().size) {
      axes.back().size *= sizes[i];
    } else {
      axes.push_back({sizes[i], stride});
    }
  }
  if (!axes.empty() && axes.front().stride == item) {
    item *= axes.front().size;
    axes.erase(axes.begin());
  }
  std::reverse(axes.begin(), axes.end());
  auto* out = static_cast<char*>(to);
  auto* in = static_cast<const char*>(from);
  switch (item) {
    case 1: Copier<1>{item}.copy(out, in, axes.data(), axes.size()); break;
    case 2: Copier<2>{item}.copy(out, in, axes.data(), axes.size()); break;
    case 4: Copier<4>{item}.copy(out, in, axes.data(), axes.size()); break;
    case 8: Copier<8>{item}.copy(out, in, axes.data(), axes.size()); break;
    case 16: Copier<16>{item}.copy(out, in, axes.data(), axes.size()); break;
    default: Copier<0>{item}.copy(out, in, axes.data(), axes.size());
  }
}

}  // namespace ral
