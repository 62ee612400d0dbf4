// Writes and reads files for the tests in Python, which have the formats' own packages on the other side.
//   io_files copy IN OUT     a safetensors file, read and written again
//   io_files list IN         a line a tensor: name, type, shape, elements as hexadecimal doubles ("-" where
//   none fit) io_files events FOLDER   an event file of a first and of a resumed run io_files case IN reads a
//   case; prints nothing
#include <cstdio>
#include <iostream>
#include <span>
#include <string>

#include "iha/io/case_file.h"
#include "iha/io/event_file.h"
#include "iha/io/safetensors.h"

namespace iha::io {
namespace {

void copy(const std::string& from, const std::string& to) {
  const SafeTensors file = SafeTensors::open(from);
  std::vector<TensorEntry> entries;
  for (const auto& [name, tensor] : file.tensors())
    entries.push_back({name, tensor.type, tensor.shape, tensor.bytes});
  save_safetensors(to, entries, file.metadata());
}

void list(const std::string& path) {
  const SafeTensors file = SafeTensors::open(path);
  for (const auto& [name, tensor] : file.tensors()) {
    std::cout << name << '\t' << name_of(tensor.type) << '\t';
    for (const int64_t size : tensor.shape) std::cout << size << ' ';
    std::cout << '\t';
    try {
      for (const double value : to_doubles(tensor)) std::printf("%a ", value), std::fflush(stdout);
    } catch (const std::invalid_argument&) {
      std::cout << '-';
    }
    std::cout << std::endl;
  }
}

void write_events(const std::string& folder) {
  EventFile first(folder);
  for (int64_t step = 0; step < 200; ++step)
    first.scalar("train/loss", step, 1.0 / static_cast<double>(step + 1));
  first.text("sample", 199, "def f():\n    return '\xFF <b>'");
  EventFile resumed(folder, 150);
  for (int64_t step = 150; step < 160; ++step) resumed.scalar("train/loss", step, -static_cast<double>(step));
  resumed.scalar("far", int64_t{1} << 40, 3e38);
}

}  // namespace
}  // namespace iha::io

int main(int count, char** values) try {
  const std::span<char*> arguments(values, static_cast<std::size_t>(count));
  const std::string command = count > 2 ? arguments[1] : "";
  if (command == "copy" && count == 4) {
    iha::io::copy(arguments[2], arguments[3]);
  } else if (command == "list") {
    iha::io::list(arguments[2]);
  } else if (command == "events") {
    iha::io::write_events(arguments[2]);
  } else if (command == "case") {
    iha::io::read_case(std::filesystem::path(arguments[2]));
  } else {
    std::cerr << "usage: io_files copy IN OUT | list IN | events FOLDER | case IN\n";
    return 2;
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
