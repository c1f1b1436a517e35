// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// For studies/record_places.py, which says what is measured: places for memory that is to outlive its
// process, what storing there costs, and a program that stores there until it is killed. No libinject in it.
//
//   costs PLACE BYTES            a store to each page: the first one, after the page was made ready, after
//   write-back stall PLACE BYTES SECONDS    the longest store while pages are written back all the time hold
//   PLACE BYTES PROGRESS [keeper] [subreaper] [watch] [slow] [eat=MB]
//                                stores numbers until it is killed; PROGRESS has the last one that was
//                                stored, and the nanoseconds of the longest store since somebody set them to
//                                0
//   load PATH SECONDS            writes to a file without a pause
//   lease PATH                   what leases on a file that is mapped can be had, and how long they hold
//   others up
//
// PLACE: file:PATH, memfd (sealed, cannot shrink), anonymous (for comparison), pwrite:PATH (hold: another
// thread writes what was stored to a file every 5 ms).
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kPage = 4096;
constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, since Linux 5.14

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

std::int64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

struct Place {
  int file = -1;
  std::uint8_t* base = nullptr;
  std::size_t bytes = 0;
  std::int64_t made_ns = 0;
  std::size_t pages() const { return bytes / kPage; }
  std::atomic<std::uint64_t>& word(std::size_t page) const {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(base + page * kPage);
  }
};

Place make(const std::string& place, std::size_t bytes) {
  Place made;
  made.bytes = bytes;
  const std::int64_t begin = now();
  int flags = MAP_SHARED;
  if (place == "anonymous") {
    flags = MAP_PRIVATE | MAP_ANONYMOUS;
  } else if (place == "memfd" || place.starts_with("pwrite:")) {
    made.file = memfd_create("records", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  } else {
    made.file = open(place.substr(5).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  }
  if (made.file < 0 && flags == MAP_SHARED) fail("open");
  if (made.file >= 0 && fallocate(made.file, 0, 0, static_cast<off_t>(bytes)) != 0) fail("fallocate");
  if (place == "memfd" && fcntl(made.file, F_ADD_SEALS, F_SEAL_SHRINK) != 0) fail("seal");
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, made.file, 0);
  if (mapped == MAP_FAILED) fail("mmap");
  if (place.starts_with("file:") && fchmod(made.file, S_IRUSR) != 0) fail("chmod");
  made.base = static_cast<std::uint8_t*>(mapped);
  made.made_ns = now() - begin;
  return made;
}

/// Nanoseconds of a store to each page, with those of the clock.
std::vector<std::int64_t> stores(const Place& place, std::size_t first, std::size_t end) {
  std::vector<std::int64_t> found(end - first);
  for (std::size_t page = first; page < end; ++page) {
    const std::int64_t begin = now();
    place.word(page).store(page + 1, std::memory_order_relaxed);
    found[page - first] = now() - begin;
  }
  return found;
}

/// The mean, as the kernel maps several pages at once, and the longest.
std::string summary(const char* name, const std::vector<std::int64_t>& found) {
  std::int64_t sum = 0;
  for (const std::int64_t one : found) sum += one;
  std::array<char, 200> text;
  std::snprintf(text.data(), text.size(), "\"%s\": [%lld, %lld]", name,
                static_cast<long long>(sum) / static_cast<long long>(found.size()),
                static_cast<long long>(*std::max_element(found.begin(), found.end())));
  return text.data();
}

int costs(const std::string& where, std::size_t bytes) {
  const Place place = make(where, bytes);
  const std::size_t half = place.pages() / 2;
  const std::string first = summary("first", stores(place, 0, half));
  std::int64_t begin = now();
  if (madvise(place.base + half * kPage, (place.pages() - half) * kPage, kPopulateWrite) != 0)
    fail("populate");
  const auto populate = (now() - begin) / static_cast<std::int64_t>(place.pages() - half);
  const std::string populated = summary("populated", stores(place, half, place.pages()));
  const std::string warm = summary("warm", stores(place, 0, place.pages()));
  begin = now();
  if (place.file >= 0 && fsync(place.file) != 0) fail("fsync");
  const std::int64_t synced = now() - begin;
  const std::string again = summary("again", stores(place, 0, place.pages()));
  std::printf("{\"made_ms\": %.3f, %s, \"populate_ns\": %lld, %s, %s, \"sync_ms\": %.3f, %s}\n",
              static_cast<double>(place.made_ns) / 1e6, first.c_str(), static_cast<long long>(populate),
              populated.c_str(), warm.c_str(), static_cast<double>(synced) / 1e6, again.c_str());
  return 0;
}

int stall(const std::string& where, std::size_t bytes, int seconds) {
  const Place place = make(where, bytes);
  madvise(place.base, bytes, kPopulateWrite);
  std::atomic<bool> over{false};
  std::thread flusher([&] {
    while (!over.load()) {
      if (place.file >= 0) {
        sync_file_range(place.file, 0, 0, SYNC_FILE_RANGE_WRITE);
        fdatasync(place.file);
      }
      usleep(20'000);
    }
  });
  std::vector<std::int64_t> found;
  const std::int64_t end = now() + seconds * std::int64_t{1'000'000'000};
  for (std::size_t i = 0; now() < end; ++i) {
    const std::int64_t begin = now();
    place.word(i % place.pages()).store(i + 1, std::memory_order_relaxed);
    found.push_back(now() - begin);
    if (i % 16 == 0) usleep(200);
  }
  over.store(true);
  flusher.join();
  std::sort(found.begin(), found.end());
  std::printf("{\"stores\": %zu, \"median_ns\": %lld, \"p999_ns\": %lld, \"max_ms\": %.3f}\n", found.size(),
              static_cast<long long>(found[found.size() / 2]),
              static_cast<long long>(found[found.size() - 1 - found.size() / 1000]),
              static_cast<double>(found.back()) / 1e6);
  return 0;
}

/// A process that is nobody's child and has the memory's descriptor.
void start_keeper(int file, std::string& said) {
  const std::int64_t begin = now();
  std::array<int, 2> ready;
  if (pipe2(ready.data(), O_CLOEXEC) != 0) fail("pipe");
  const pid_t middle = fork();
  if (middle == 0) {
    setsid();
    if (fork() == 0) {
      const std::string number = std::to_string(fcntl(file, F_DUPFD, 10));
      const std::string told = std::to_string(fcntl(ready[1], F_DUPFD, 10));
      execl("/proc/self/exe", "keeper", "keep", number.c_str(), told.c_str(), nullptr);
    }
    _exit(0);
  }
  waitpid(middle, nullptr, 0);
  close(ready[1]);
  pid_t keeper = 0;
  if (read(ready[0], &keeper, sizeof keeper) != sizeof keeper) fail("keeper");
  close(ready[0]);
  const auto took = static_cast<double>(now() - begin) / 1e6;
  // What a program finds that waits for whatever children it has.
  const pid_t found = waitpid(-1, nullptr, WNOHANG);
  std::array<char, 200> text;
  std::snprintf(text.data(), text.size(), ", \"keeper_ms\": %.3f, \"wait\": \"%s\"", took,
                found < 0 ? (errno == ECHILD ? "ECHILD" : "error") : "a child");
  said += text.data();
}

/// Whether the file has an extent that another one shares; -1: the file system does not tell.
int is_shared(int file, unsigned& extents) {
  constexpr unsigned kAtOnce = 64;
  std::vector<std::uint64_t> memory((sizeof(fiemap) + kAtOnce * sizeof(fiemap_extent)) /
                                    sizeof(std::uint64_t));
  auto& asked = *reinterpret_cast<fiemap*>(memory.data());
  extents = 0;
  std::uint64_t from = 0;
  for (;;) {
    asked.fm_start = from;
    asked.fm_length = FIEMAP_MAX_OFFSET - from;
    asked.fm_extent_count = kAtOnce;
    if (ioctl(file, FS_IOC_FIEMAP, &asked) != 0) return -1;
    if (asked.fm_mapped_extents == 0) return 0;
    for (unsigned i = 0; i < asked.fm_mapped_extents; ++i) {
      const fiemap_extent& extent = asked.fm_extents[i];
      ++extents;
      if ((extent.fe_flags & FIEMAP_EXTENT_SHARED) != 0) return 1;
      if ((extent.fe_flags & FIEMAP_EXTENT_LAST) != 0) return 0;
      from = extent.fe_logical + extent.fe_length;
    }
  }
}

/// Once a second: blocks that another file shares are made our own, by a write fault of each page, which
/// raises no signal.
void watch(const Place& place) {
  for (;;) {
    unsigned extents = 0;
    std::int64_t begin = now();
    const int shared = is_shared(place.file, extents);
    const auto looked = static_cast<double>(now() - begin) / 1e3;
    begin = now();
    int failed = 0;
    if (shared == 1 && madvise(place.base, place.bytes, kPopulateWrite) != 0) failed = errno;
    const auto took = static_cast<double>(now() - begin) / 1e6;
    std::printf(
        "{\"shared\": %d, \"extents\": %u, \"look_us\": %.1f, \"unshare_ms\": %.3f, \"failed\": %d}\n",
        shared, extents, looked, shared == 1 ? took : 0.0, failed);
    std::fflush(stdout);
    sleep(1);
  }
}

int hold(const std::string& where, std::size_t bytes, const char* progress_path,
         const std::vector<std::string_view>& more) {
  const auto has = [&](std::string_view word) {
    return std::find(more.begin(), more.end(), word) != more.end();
  };
  if (has("subreaper")) prctl(PR_SET_CHILD_SUBREAPER, 1);
  const int progress_file = open(progress_path, O_RDWR);
  if (progress_file < 0) fail(progress_path);
  void* mapped = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, progress_file, 0);
  if (mapped == MAP_FAILED) fail("mmap");
  auto& progress = *static_cast<std::atomic<std::uint64_t>*>(mapped);
  auto& longest = *(&progress + 1);
  const Place place = make(where, bytes);
  std::string said = "{\"ready\": 1";
  if (has("keeper")) start_keeper(place.file, said);
  std::atomic<std::uint64_t> stored{0};
  std::thread other;
  if (where.starts_with("pwrite:")) {
    other = std::thread([&, file = open(where.substr(7).c_str(), O_RDWR | O_CREAT | O_EXCL, 0600)] {
      std::vector<std::uint64_t> records;
      for (std::uint64_t taken = 0;;) {
        records.clear();
        const std::uint64_t end = stored.load();
        while (taken < end) records.insert(records.end(), 8, ++taken);  // 64 bytes each
        if (pwrite(file, records.data(), records.size() * 8,
                   static_cast<off_t>((taken - records.size() / 8) * 64)) < 0)
          fail("pwrite");
        usleep(5'000);
      }
    });
  } else if (has("watch")) {
    other = std::thread([&] { watch(place); });
  }
  for (std::string_view word : more) {
    if (!word.starts_with("eat=")) continue;  // the program's own memory, after all of ours has been in use
    for (std::size_t page = 0; page < place.pages(); ++page) place.word(page).store(1);
    const std::size_t wanted = std::strtoull(word.data() + 4, nullptr, 10) << 20;
    auto* memory = static_cast<volatile char*>(std::malloc(wanted));
    for (std::size_t i = 0; i < wanted; i += kPage) memory[i] = 1;
  }
  std::puts((said + "}").c_str());
  std::fflush(stdout);
  const bool slow = has("slow");
  for (std::uint64_t i = 1;; ++i) {
    const std::int64_t begin = now();
    place.word(i % place.pages()).store(i, std::memory_order_relaxed);
    const auto took = static_cast<std::uint64_t>(now() - begin);
    if (took > longest.load()) longest.store(took);
    stored.store(i);
    progress.store(i);
    if (i % 8 == 0) usleep(slow && i > 2 * place.pages() ? 2'000 : 50);
  }
}

int load(const char* path, int seconds) {
  const std::vector<char> block(1 << 20, 'x');
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0) fail(path);
  const std::int64_t end = now() + seconds * std::int64_t{1'000'000'000};
  std::uint64_t written = 0;
  for (unsigned i = 0; now() < end; ++i) {
    if (pwrite(file, block.data(), block.size(), static_cast<off_t>(i % 512) << 20) < 0) fail("write");
    written += block.size();
    if (i % 64 == 63) fdatasync(file);
  }
  std::printf("{\"mb_per_s\": %.0f}\n", static_cast<double>(written) / seconds / 1e6);
  return 0;
}

int lease(const char* path) {
  const Place place = make(std::string("file:") + path, 64 * kPage);
  const auto result = [&](int kind) {
    return fcntl(place.file, F_SETLEASE, kind) == 0 ? "0" : std::strerror(errno);
  };
  signal(SIGIO, SIG_IGN);  // it would end the program
  const std::string reading = result(F_RDLCK);
  const std::string writing = result(F_WRLCK);
  const auto seconds_of = [&](int flags) {
    if (fcntl(place.file, F_SETLEASE, F_WRLCK) != 0) return -1.0;
    const std::int64_t begin = now();
    const pid_t child = fork();
    if (child == 0) _exit(open(path, flags) < 0);
    waitpid(child, nullptr, 0);
    return static_cast<double>(now() - begin) / 1e9;
  };
  const double read_s = seconds_of(O_RDONLY);
  const double truncate_s = seconds_of(O_WRONLY | O_TRUNC);
  std::printf(
      "{\"read_lease\": \"%s\", \"write_lease\": \"%s\", \"reader_waits_s\": %.1f, \"truncation_waits_s\": "
      "%.1f}\n",
      reading.c_str(), writing.c_str(), read_s, truncate_s);
  return 0;
}

int keep(int told) {
  const pid_t self = getpid();
  if (write(told, &self, sizeof self) != sizeof self) return 1;
  close(told);
  for (int file = 0; file < 3; ++file) close(file);
  for (;;) pause();
}

}  // namespace

int main(int count, char** given) {
  const std::vector<std::string_view> words(given + 1, given + count);
  const auto number = [&](std::size_t i) { return std::strtoull(words[i].data(), nullptr, 10); };
  if (words.size() >= 3 && words[0] == "costs") return costs(given[2], number(2));
  if (words.size() >= 4 && words[0] == "stall")
    return stall(given[2], number(2), static_cast<int>(number(3)));
  if (words.size() >= 4 && words[0] == "hold")
    return hold(given[2], number(2), given[4], {words.begin() + 4, words.end()});
  if (words.size() >= 3 && words[0] == "load") return load(given[2], static_cast<int>(number(2)));
  if (words.size() >= 2 && words[0] == "lease") return lease(given[2]);
  if (words.size() >= 3 && words[0] == "keep") return keep(static_cast<int>(number(2)));
  std::fputs("see studies/record_places.py\n", stderr);
  return 2;
}
