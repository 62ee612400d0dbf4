#include "iha/io/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "iha/core/error.h"

namespace iha::io {
namespace {

[[noreturn]] void fail_errno(const char* what, const std::filesystem::path& path, int error = errno) {
  throw std::system_error(error, std::generic_category(), std::string(what) + " " + path.string());
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

bool is_the_file_at(int descriptor, const std::filesystem::path& path) {
  struct stat opened {
  }, named{};
  return fstat(descriptor, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

// Opens and locks `path`. Between the two another writer may have renamed the file that was opened, which
// then is its finished target: so the name is looked at again under the lock, before a byte is cut.
int open_locked(const std::filesystem::path& path) {
  for (;;) {
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0) fail_errno("cannot create", path);
    if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      ::close(descriptor);
      fail_errno(error == EWOULDBLOCK ? "another writer is at work on" : "cannot lock", path, error);
    }
    if (is_the_file_at(descriptor, path)) {
      if (ftruncate(descriptor, 0) == 0) return descriptor;
      const int error = errno;
      ::close(descriptor);
      fail_errno("cannot empty", path, error);
    }
    ::close(descriptor);
  }
}

void sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail_errno("cannot open", folder);
  const int status = fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  // Some file systems cannot sync a folder; they order the rename themselves.
  if (status != 0 && error != EINVAL) fail_errno("cannot sync", folder, error);
}

template <class Bytes>
Bytes read_whole(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail_errno("cannot open", path);
  Bytes bytes;
  std::size_t size = 0;
  for (;;) {
    // The size on record is a hint only: files grow, and those of /proc say 0.
    struct stat status {};
    if (size == bytes.size()) {
      const bool hinted = size == 0 && fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
      bytes.resize(size + std::max<std::size_t>(4096, hinted ? status.st_size + 1 : size));
    }
    const ssize_t got = ::read(descriptor, bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int error = errno;
      ::close(descriptor);
      fail_errno("cannot read", path, error);
    }
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  ::close(descriptor);
  bytes.resize(size);
  return bytes;
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path target)
    : target_(std::move(target)),
      temporary_(folder_of(target_) / text(".", target_.filename().string(), ".tmp")),
      descriptor_(open_locked(temporary_)) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::unlink(temporary_.c_str());  // while the lock is held: nobody else's file has this name
  ::close(descriptor_);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_errno("cannot write", temporary_);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  if (fsync(descriptor_) != 0) fail_errno("cannot sync", temporary_);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail_errno("cannot rename to", target_);
  ::close(descriptor_);
  descriptor_ = -1;
  sync_folder(folder_of(target_));
}

void replace_file(const std::filesystem::path& target, std::string_view content) {
  AtomicFile file(target);
  file.write(content);
  file.commit();
}

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  return read_whole<std::vector<std::byte>>(path);
}

std::string read_text(const std::filesystem::path& path) {
  return read_whole<std::string>(path);
}

}  // namespace iha::io
