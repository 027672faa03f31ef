// A linker for what LLVM writes: sections side by side in one mapping, then relocations. Every offset in the object is
// checked before it is used, for a file may be damaged.
#include "link/code.h"

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <vector>

#include "link/relocations.h"

namespace ral {
namespace {

constexpr uint64_t kMost = uint64_t{1} << 31;

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument(why); }

// The machine that this process runs on.
const RelocationRules& host() {
#if defined(__aarch64__)
  return aarch64_relocations();
#else
  return x86_64_relocations();
#endif
}

uint64_t aligned(uint64_t at, uint64_t to) { return (at + to - 1) / to * to; }

class Object {
 public:
  Object(const char* data, size_t size) : data_(data), size_(size) {
    if (size < sizeof(Elf64_Ehdr) || std::memcmp(data, ELFMAG, SELFMAG) != 0) refuse("it is no ELF object");
    auto header = table<Elf64_Ehdr>(0, 1)[0];
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_type != ET_REL ||
        header.e_machine != host().elf_machine || header.e_shentsize != sizeof(Elf64_Shdr)) {
      refuse(std::string("it is no relocatable object for ") + host().machine);
    }
    sections = table<Elf64_Shdr>(header.e_shoff, header.e_shnum);
    names_ = header.e_shstrndx;
    for (const Elf64_Shdr& section : sections) {
      if (section.sh_type == SHT_SYMTAB) {
        symbols = table<Elf64_Sym>(section.sh_offset, section.sh_size / sizeof(Elf64_Sym));
        symbol_names_ = section.sh_link;
      }
    }
  }

  template <class T>
  std::vector<T> table(uint64_t offset, uint64_t count) const {
    if (offset > size_ || count > (size_ - offset) / sizeof(T)) refuse("its end is missing");
    std::vector<T> out(count);
    if (count) std::memcpy(out.data(), data_ + offset, count * sizeof(T));
    return out;
  }

  const char* content(const Elf64_Shdr& section) const {
    if (section.sh_offset > size_ || section.sh_size > size_ - section.sh_offset) refuse("its end is missing");
    return data_ + section.sh_offset;
  }

  const Elf64_Shdr& section(uint64_t number) const {
    if (number >= sections.size()) refuse("it names a section that it lacks");
    return sections[number];
  }

  const Elf64_Sym& symbol(uint64_t number) const {
    if (number >= symbols.size()) refuse("it names a symbol that it lacks");
    return symbols[number];
  }

  std::string name(const Elf64_Sym& symbol) const { return text(symbol_names_, symbol.st_name); }
  std::string name(const Elf64_Shdr& section) const { return text(names_, section.sh_name); }

  std::vector<Elf64_Shdr> sections;
  std::vector<Elf64_Sym> symbols;

 private:
  std::string text(uint64_t table, uint64_t at) const {
    const Elf64_Shdr& strings = section(table);
    const char* first = content(strings);
    if (at >= strings.sh_size || !std::memchr(first + at, 0, strings.sh_size - at)) refuse("a name has no end");
    return first + at;
  }

  const char* data_;
  size_t size_;
  uint64_t names_ = 0, symbol_names_ = 0;
};

// Parts of the mapping with the same protection, in their order.
enum Part { kCode, kConstants, kData, kParts };
constexpr int kProtection[] = {PROT_READ | PROT_EXEC, PROT_READ, PROT_READ | PROT_WRITE};

class Linking : public Symbols {
 public:
  Linking(const Object& object, const std::unordered_map<std::string, uintptr_t>& symbols)
      : object_(object), symbols_(symbols), places_(object.sections.size(), kNowhere) {
    uint64_t ends[kParts];
    for (int part = kCode; part < kParts; part++) {
      size_ = aligned(size_, page_);
      starts_[part] = size_;
      for (size_t i = 0; i < places_.size(); i++) {
        if (is_loaded(object.sections[i]) && part_of(object.sections[i]) == part) place(i);
      }
      if (part == kCode) stubs_ = reserve(kStub * object.symbols.size());
      if (part == kConstants) addresses_ = reserve(sizeof(uint64_t) * object.symbols.size());
      ends[part] = size_;
    }
    size_ = aligned(size_ + 1, page_);
    void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<char*>(memory);
    try {
      fill();
      __builtin___clear_cache(base_ + starts_[kCode], base_ + ends[kCode]);
      for (int part = kCode; part < kParts; part++) {
        if (ends[part] == starts_[part]) continue;
        if (mprotect(base_ + starts_[part], ends[part] - starts_[part], kProtection[part]) != 0) {
          refuse(std::string("this system does not let code run: ") + std::strerror(errno));
        }
      }
    } catch (...) {
      munmap(base_, size_);
      throw;
    }
  }

  char* base() const { return base_; }
  size_t size() const { return size_; }

  // The symbols that others can see, or all functions.
  std::unordered_map<std::string, uintptr_t> found(bool functions) const {
    std::unordered_map<std::string, uintptr_t> found;
    for (const Elf64_Sym& symbol : object_.symbols) {
      bool is_wanted =
          functions ? ELF64_ST_TYPE(symbol.st_info) == STT_FUNC : ELF64_ST_BIND(symbol.st_info) != STB_LOCAL;
      if (is_wanted && symbol.st_shndx != SHN_UNDEF && symbol.st_shndx < places_.size()) {
        found[object_.name(symbol)] = defined(symbol);
      }
    }
    return found;
  }

 private:
  static constexpr uint64_t kNowhere = std::numeric_limits<uint64_t>::max();

  // Nothing unwinds through generated code.
  bool is_loaded(const Elf64_Shdr& section) const {
    return section.sh_flags & SHF_ALLOC && object_.name(section) != ".eh_frame";
  }

  static Part part_of(const Elf64_Shdr& section) {
    if (section.sh_flags & SHF_EXECINSTR) return kCode;
    return section.sh_flags & SHF_WRITE ? kData : kConstants;
  }

  uint64_t reserve(uint64_t bytes, uint64_t alignment = 64) {
    if (bytes >= kMost || alignment > page_ || (alignment & (alignment - 1))) refuse("its sizes are impossible");
    uint64_t at = aligned(size_, std::max<uint64_t>(alignment, 1));
    size_ = at + bytes;
    if (size_ >= kMost) refuse("it is larger than 2 GiB");
    return at;
  }

  void place(size_t number) {
    const Elf64_Shdr& section = object_.sections[number];
    places_[number] = reserve(section.sh_size, section.sh_addralign);
    if (section.sh_flags & SHF_TLS) refuse("it has variables of threads");
  }

  void fill() {
    for (size_t i = 0; i < places_.size(); i++) {
      const Elf64_Shdr& section = object_.sections[i];
      if (places_[i] != kNowhere && section.sh_type != SHT_NOBITS) {
        std::memcpy(base_ + places_[i], object_.content(section), section.sh_size);
      }
    }
    for (const Elf64_Shdr& section : object_.sections) {
      if (section.sh_type != SHT_RELA) continue;
      const Elf64_Shdr& target = object_.section(section.sh_info);
      uint64_t place = places_[section.sh_info];
      if (place == kNowhere) continue;
      for (const auto& r : object_.table<Elf64_Rela>(section.sh_offset, section.sh_size / sizeof(Elf64_Rela))) {
        uint64_t type = ELF64_R_TYPE(r.r_info), bytes = host().bytes(type);
        if (r.r_offset > target.sh_size || bytes > target.sh_size - r.r_offset) refuse("a relocation is outside");
        host().relocate(*this, type, ELF64_R_SYM(r.r_info), static_cast<uint64_t>(r.r_addend),
                        base_ + place + r.r_offset);
      }
    }
  }

  std::string name(uint64_t number) const override { return object_.name(object_.symbol(number)); }

  uint64_t value(uint64_t number) const override {
    const Elf64_Sym& symbol = object_.symbol(number);
    if (symbol.st_shndx == SHN_ABS) return symbol.st_value;
    if (symbol.st_shndx != SHN_UNDEF) return defined(symbol);
    std::string name = object_.name(symbol);
    auto found = symbols_.find(name);
    if (found != symbols_.end()) return found->second;
    if (void* address = dlsym(RTLD_DEFAULT, name.c_str())) return reinterpret_cast<uintptr_t>(address);
    refuse("it calls @" + name + ", which is neither given to link nor in this process");
  }

  // A function that is not in the object may be anywhere, and is reached by a jump.
  uint64_t callable(uint64_t number) override {
    if (object_.symbol(number).st_shndx != SHN_UNDEF) return value(number);
    char* stub = base_ + stubs_ + kStub * number;
    const std::string_view jump = host().jump;
    const uint64_t target = value(number);
    std::memcpy(stub, jump.data(), jump.size());
    std::memcpy(stub + jump.size(), &target, sizeof target);
    return reinterpret_cast<uintptr_t>(stub);
  }

  uint64_t address_of_address(uint64_t number) override {
    uint64_t target = value(number);
    char* slot = base_ + addresses_ + sizeof target * number;
    std::memcpy(slot, &target, sizeof target);
    return reinterpret_cast<uintptr_t>(slot);
  }

  uint64_t defined(const Elf64_Sym& symbol) const {
    if (symbol.st_shndx >= places_.size() || places_[symbol.st_shndx] == kNowhere) {
      refuse("@" + object_.name(symbol) + " is in no section that is loaded");
    }
    if (symbol.st_value > object_.sections[symbol.st_shndx].sh_size) refuse("a symbol is outside of its section");
    return reinterpret_cast<uintptr_t>(base_) + places_[symbol.st_shndx] + symbol.st_value;
  }

  const Object& object_;
  const std::unordered_map<std::string, uintptr_t>& symbols_;
  const uint64_t page_ = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::vector<uint64_t> places_;  // of each section in the mapping
  uint64_t starts_[kParts];
  uint64_t stubs_ = 0, addresses_ = 0;  // one a symbol, where they are needed
  uint64_t size_ = 0;
  char* base_ = nullptr;
};

}  // namespace

Code::Code(const char* object, size_t size, const std::unordered_map<std::string, uintptr_t>& symbols) {
  Object read(object, size);
  Linking linked(read, symbols);
  memory_ = linked.base();
  size_ = linked.size();
  try {
    exports_ = linked.found(false);
    functions_ = linked.found(true);
  } catch (...) {
    munmap(memory_, size_);
    throw;
  }
}

void Code::close() {
  if (memory_) munmap(memory_, size_);
  memory_ = nullptr;
  exports_.clear();
  functions_.clear();
}

uintptr_t Code::address(const std::string& name) const {
  auto found = exports_.find(name);
  return found == exports_.end() ? 0 : found->second;
}

}  // namespace ral
