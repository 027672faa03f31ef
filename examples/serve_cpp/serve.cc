// Embeds sentences: reads their tokens, a sentence a line, and writes for each the one that is most like it.
//
//   serve TOKENS [EXPECTED]
//
// EXPECTED are vectors of another program for the same sentences, with which these must agree bit for bit.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "MiniLM.h"

namespace {

// A batch of sentences, padded to the longest, as the model takes it.
struct Batch {
  explicit Batch(std::istream& lines) {
    std::vector<std::vector<int32_t>> sentences;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream numbers(line);
      sentences.emplace_back(std::istream_iterator<int32_t>(numbers), std::istream_iterator<int32_t>());
      length = std::max(length, static_cast<int64_t>(sentences.back().size()));
    }
    count = static_cast<int64_t>(sentences.size());
    ids.resize(static_cast<size_t>(count * length));
    mask.resize(ids.size());
    for (int64_t i = 0; i < count; i++) {
      const std::vector<int32_t>& sentence = sentences[static_cast<size_t>(i)];
      std::copy(sentence.begin(), sentence.end(), ids.begin() + i * length);
      std::fill_n(mask.begin() + i * length, sentence.size(), 1);
    }
  }

  int64_t count = 0, length = 0;
  std::vector<int32_t> ids, mask;
};

// The model, and all that C++ programs want of it.
class Embedder {
 public:
  Embedder() { check(MiniLM_open(nullptr, HLO_DISC_API_VERSION, &model_)); }
  Embedder(const Embedder&) = delete;
  ~Embedder() { MiniLM_close(model_); }

  // A vector a sentence, of unit length.
  std::vector<float> operator()(Batch& batch) const {
    hlo_disc_tensor inputs[] = {tensor(batch.ids, batch), tensor(batch.mask, batch)};
    hlo_disc_tensor output{};
    check(MiniLM_plan(model_, inputs, &output, nullptr));
    std::vector<float> vectors(output.bytes / sizeof(float));
    output.data = vectors.data();
    check(MiniLM_run(model_, inputs, &output));
    return vectors;
  }

 private:
  static hlo_disc_tensor tensor(std::vector<int32_t>& data, const Batch& batch) {
    hlo_disc_tensor made{};
    made.dtype = HLO_DISC_INT32;
    made.rank = 2;
    made.shape[0] = batch.count;
    made.shape[1] = batch.length;
    made.data = data.data();
    return made;
  }

  static void check(int32_t status) {
    if (status != HLO_DISC_OK) throw std::runtime_error(MiniLM_error());
  }

  hlo_disc_model* model_ = nullptr;
};

int run(int argc, char** argv) {
  std::ifstream tokens(argv[1]);
  if (!tokens) throw std::runtime_error(std::string("cannot read ") + argv[1]);
  Batch batch(tokens);
  const auto start = std::chrono::steady_clock::now();
  Embedder embed;
  const auto opened = std::chrono::steady_clock::now();
  const std::vector<float> vectors = embed(batch);
  const auto done = std::chrono::steady_clock::now();
  const auto size = static_cast<int64_t>(vectors.size()) / std::max<int64_t>(batch.count, 1);
  for (int64_t i = 0; i < batch.count; i++) {
    int64_t nearest = -1;
    float most = -2;
    for (int64_t j = 0; j < batch.count; j++) {
      float likeness = 0;
      for (int64_t k = 0; k < size; k++) likeness += vectors[i * size + k] * vectors[j * size + k];
      if (j != i && likeness > most) {
        most = likeness;
        nearest = j;
      }
    }
    std::cout << "sentence " << i << " is most like sentence " << nearest << " (" << most << ")\n";
  }
  const auto ms = [](auto time) { return std::chrono::duration<double, std::milli>(time).count(); };
  std::cout << "opened in " << ms(opened - start) << " ms, embedded in " << ms(done - opened) << " ms\n";
  if (argc < 3) return 0;
  std::ifstream file(argv[2], std::ios::binary);
  const std::vector<char> expected{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const bool equal = expected.size() == vectors.size() * sizeof(float) &&
                     std::memcmp(expected.data(), vectors.data(), expected.size()) == 0;
  std::cout << vectors.size() << " numbers, " << (equal ? "equal bits" : "DIFFERENT BITS") << "\n";
  return equal ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: serve TOKENS [EXPECTED]\n";
    return 2;
  }
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
