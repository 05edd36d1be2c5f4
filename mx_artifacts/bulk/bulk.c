/* What is done to thousands of small files at once, without the interpreter in between.
 *
 * A plain library, called through ctypes, so that building it takes a C compiler and no headers of
 * Python's, and a call releases the interpreter's lock. Each function does what the Python next to
 * it does (the module that calls it), which stays the reference and is what runs where this was not
 * built; tests compare the two.
 *
 * Lists come as columns of `count`. Names are strings one after the other, each with its NUL.
 * A function that works through a list returns how many items it has done; where those are not all,
 * `*error` says why the next one failed: an errno, or one of the numbers below, or there is one
 * reason only, which the function's comment has. Nothing is kept between calls, so any number of
 * threads may be in here.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define VERSION 6 /* of these functions' arguments; library.py has the same */
#define SHORT 0    /* a file has fewer bytes than were asked for */
#define OUTSIDE -1 /* the part of the buffer that is stated does not lie in it */
#define LINKED (1 << 20) /* in the column of modes: a file that has other names, too */

/* --- CRC32C, with the processor's instruction ------------------------------------------------- */

#define POLYNOMIAL 0x82f63b78u /* Castagnoli, RFC 3720 appendix B.4, bits in reflected order */

#if defined(__x86_64__)

#include <nmmintrin.h>
#if defined(__clang__) && __clang_major__ >= 14 /* has a feature of its own for it since then */
#define CHECKSUMMING __attribute__((target("sse4.2,crc32")))
#else
#define CHECKSUMMING __attribute__((target("sse4.2")))
#endif
#define has_instruction() __builtin_cpu_supports("sse4.2")
#define of_8_bytes(sum, word) ((uint32_t)_mm_crc32_u64(sum, word))
#define of_byte(sum, byte) _mm_crc32_u8(sum, byte)

#elif defined(__aarch64__) && defined(__linux__)

#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#define CHECKSUMMING __attribute__((target("+crc")))
#define has_instruction() (getauxval(AT_HWCAP) & HWCAP_CRC32)
#define of_8_bytes(sum, word) __crc32cd(sum, word)
#define of_byte(sum, byte) __crc32cb(sum, byte)

#else
#error "bulk.c knows no instruction for CRC32C here; the Python beside it is used instead"
#endif

/* The product of two polynomials modulo the checksum's; bit 31 is the coefficient of x^0. */
static uint32_t product(uint32_t left, uint32_t right)
{
    uint32_t sum = 0;
    for (uint32_t bit = 1u << 31; bit; bit >>= 1) {
        if (left & bit)
            sum ^= right;
        right = right & 1 ? right >> 1 ^ POLYNOMIAL : right >> 1;
    }
    return sum;
}

static uint32_t powers[64]; /* x^(8 * 2^n): what appending 2^n zero bytes multiplies with */

__attribute__((constructor)) static void make_powers(void) /* before any thread can be here */
{
    powers[0] = 1u << (31 - 8);
    for (int n = 1; n < 64; n++)
        powers[n] = product(powers[n - 1], powers[n - 1]);
}

#define STREAM_EXPONENT 12
#define STREAM (1 << STREAM_EXPONENT) /* bytes; combining three of them costs as much as 2 KiB */

CHECKSUMMING static uint32_t with_8_bytes(uint32_t sum, const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, 8);
    return of_8_bytes(sum, word);
}

/* The instruction takes three cycles, in each of which another one can begin: so three neighbouring
 * streams are gone over at once, as far as they go. */
CHECKSUMMING static uint32_t crc32c(const uint8_t *data, size_t length, uint32_t value)
{
    uint32_t sum = ~value;
    for (; length >= 3 * STREAM; data += 3 * STREAM, length -= 3 * STREAM) {
        uint32_t second = 0, third = 0;
        for (const uint8_t *at = data; at < data + STREAM; at += 8) {
            sum = with_8_bytes(sum, at);
            second = with_8_bytes(second, at + STREAM);
            third = with_8_bytes(third, at + 2 * STREAM);
        }
        sum = product(powers[STREAM_EXPONENT + 1], sum) ^
              product(powers[STREAM_EXPONENT], second) ^ third;
    }
    for (; length >= 8; data += 8, length -= 8)
        sum = with_8_bytes(sum, data);
    for (; length; data++, length--)
        sum = of_byte(sum, *data);
    return ~sum;
}

/* The checksum of two byte strings one after the other. */
static uint32_t joined(uint32_t first, uint32_t second, uint64_t second_length)
{
    for (int n = 0; second_length; n++, second_length >>= 1)
        if (second_length & 1)
            first = product(powers[n], first);
    return first ^ second;
}

/* Return the version of these functions' arguments, 0 if this processor cannot run them. */
int bulk_version(void)
{
    return has_instruction() ? VERSION : 0;
}

/* --- files ------------------------------------------------------------------------------------ */

/* Tell a time [ns]; return whether it is too late or early for that (after the year 2262). */
static int out_of_range(struct timespec time, int64_t *ns)
{
    return __builtin_mul_overflow((int64_t)time.tv_sec, 1000000000, ns) ||
           __builtin_add_overflow(*ns, (int64_t)time.tv_nsec, ns);
}

static int is_within(int64_t offset, int64_t length, int64_t bytes)
{
    return offset >= 0 && length >= 0 && length <= bytes && offset <= bytes - length;
}

/* --- below a directory ------------------------------------------------------------------------
 *
 * As beneath.py has it: no symbolic link is followed, at the end of a path or on the way, and no
 * path goes up. Every function here that takes a `root` opens the files of a list so. */

#define DIRECTORY (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define MAX_NAME_BYTES 255

#if !defined(SYS_openat2) && (defined(__x86_64__) || defined(__aarch64__))
#define SYS_openat2 437
#endif

struct how { /* linux/openat2.h, which older systems lack */
    uint64_t flags, mode, resolve;
};

static int open_at(int directory, const char *name, int flags, mode_t mode)
{
    int file;
    do
        file = openat(directory, name, flags | O_NOFOLLOW | O_CLOEXEC, mode);
    while (file < 0 && errno == EINTR);
    return file;
}

/* Open one part of a path, which is no "..", as a directory. A link is ELOOP, as openat2 has it. */
static int open_part(int directory, const char *part)
{
    struct stat is;
    if (!strcmp(part, "..")) {
        errno = EXDEV;
        return -1;
    }
    int found = open_at(directory, part, DIRECTORY, 0);
    if (found < 0 && errno == ENOTDIR && !fstatat(directory, part, &is, AT_SYMLINK_NOFOLLOW))
        errno = S_ISLNK(is.st_mode) ? ELOOP : ENOTDIR;
    return found;
}

/* Open the directory whose path has `length` bytes, part by part. */
static int walk(int root, const char *path, size_t length)
{
    char part[MAX_NAME_BYTES + 1];
    int directory = -1;
    for (const char *end = path + length; path <= end;) {
        const char *slash = memchr(path, '/', (size_t)(end - path));
        size_t bytes = (size_t)((slash ? slash : end) - path);
        int inner = -1;
        if (bytes <= MAX_NAME_BYTES) {
            memcpy(part, path, bytes);
            part[bytes] = 0;
            inner = open_part(directory < 0 ? root : directory, part);
        } else
            errno = ENAMETOOLONG;
        int error = errno;
        if (directory >= 0)
            close(directory);
        errno = error;
        if (inner < 0)
            return -1;
        directory = inner;
        path += bytes + 1;
    }
    return directory;
}

/* Open a path by openat2, or return -1 with ENOSYS where that cannot be had. The kernel says so, or a
 * container's rules do, by EPERM; what else that can mean, the other way finds out again. */
static int open_resolved(int root, const char *path, int flags, mode_t mode)
{
#ifdef SYS_openat2
    /* RESOLVE_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH; with O_NOFOLLOW, O_PATH would open a link */
    struct how how = {(uint64_t)(flags | O_CLOEXEC), mode, 0x02 | 0x04 | 0x08};
    long found;
    do
        found = syscall(SYS_openat2, root, path, &how, sizeof how);
    while (found < 0 && errno == EINTR);
    if (found < 0 && errno == EPERM)
        errno = ENOSYS;
    return (int)found;
#else
    (void)root, (void)path, (void)flags, (void)mode;
    errno = ENOSYS;
    return -1;
#endif
}

static int open_directory(int root, const char *path, size_t length)
{
    char copy[4096];
    if (memchr(path, '/', length) && length < sizeof copy) {
        memcpy(copy, path, length);
        copy[length] = 0;
        int found = open_resolved(root, copy, O_PATH | O_DIRECTORY, 0);
        if (found >= 0 || errno != ENOSYS)
            return found;
    }
    return walk(root, path, length);
}

/* The directory in which the last file of a list was, which nearly always is the next one's. */
struct above {
    int root, directory;
    const char *path;
    size_t length;
};

#define BELOW(root) {(root), -1, NULL, 0}

static void leave(struct above *above)
{
    int error = errno;
    if (above->directory >= 0)
        close(above->directory);
    above->directory = -1;
    errno = error;
}

/* Return the directory that holds `path`, and set `name` to its last part; -1 where there is none.
 * `path` must outlive `above`, which is to be left at the end. */
static int enter(struct above *above, const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    if (!strcmp(*name, "..")) {
        errno = EXDEV;
        return -1;
    }
    if (!slash)
        return above->root;
    size_t length = (size_t)(slash - path);
    if (above->directory < 0 || length != above->length || memcmp(path, above->path, length)) {
        leave(above);
        above->directory = open_directory(above->root, path, length);
        above->path = path;
        above->length = length;
    }
    return above->directory;
}

static int open_below(int root, const char *path, int flags, mode_t mode)
{
    const char *name;
    struct above above = BELOW(root);
    if (strchr(path, '/')) {
        int found = open_resolved(root, path, flags, mode);
        if (found >= 0 || errno != ENOSYS)
            return found;
    }
    int directory = enter(&above, path, &name);
    int found = directory < 0 ? -1 : open_at(directory, name, flags, mode);
    leave(&above);
    return found;
}

static int status_below(struct above *above, const char *path, struct stat *is)
{
    const char *name;
    int directory = enter(above, path, &name);
    return directory < 0 ? -1 : fstatat(directory, name, is, AT_SYMLINK_NOFOLLOW);
}

/* --- status ----------------------------------------------------------------------------------- */

/* Put the status of a path into six columns of `stride` numbers: device, inode, mode, size, mtime,
 * ctime [ns]. What cannot be looked at has zeros. Return whether a column is too narrow. */
static int put_status(struct above *above, const char *path, int64_t *found, int64_t stride)
{
    struct stat is;
    if (status_below(above, path, &is))
        memset(&is, 0, sizeof is);
    found[0] = (int64_t)is.st_dev;
    found[stride] = (int64_t)is.st_ino;
    found[2 * stride] = is.st_mode | (S_ISREG(is.st_mode) && is.st_nlink > 1 ? LINKED : 0);
    found[3 * stride] = is.st_size;
    return found[stride] < 0 || out_of_range(is.st_mtim, &found[4 * stride]) ||
           out_of_range(is.st_ctim, &found[5 * stride]);
}

/* Tell the status of names below the directory `root`, as `put_status` does. Ends at one for which
 * a column is too narrow. */
long bulk_status(int root, long count, const char *names, int64_t *found)
{
    struct above above = BELOW(root);
    long i = 0;
    for (; i < count; i++, names += strlen(names) + 1)
        if (put_status(&above, names, found + i, count))
            break;
    leave(&above);
    return i;
}

/* Tell what is in the directories `paths` below `root`, which is itself ".", one's names after the other's: in `names`,
 * of `bytes`, and their status in `found`, columns of `rows`. `counts` says how many each has, or,
 * negative, by which errno it cannot be told. Ends at one that has more than there is room for. */
long bulk_list(int root, long count, const char *paths, char *names, int64_t bytes, int64_t *found,
               int64_t rows, int64_t *counts)
{
    int64_t row = 0;
    for (long i = 0; i < count; i++, paths += strlen(paths) + 1) {
        int directory = open_below(root, paths, O_RDONLY | O_DIRECTORY, 0);
        DIR *listing = directory < 0 ? NULL : fdopendir(directory);
        struct above here = BELOW(directory);
        int64_t first = row, used = 0;
        int error = listing ? 0 : errno;
        if (directory >= 0 && !listing)
            close(directory);
        while (!error) {
            errno = 0;
            const struct dirent *entry = readdir(listing);
            error = errno;
            if (!entry)
                break;
            const char *name = entry->d_name;
            int64_t length = (int64_t)strlen(name) + 1;
            if (!strcmp(name, ".") || !strcmp(name, ".."))
                continue;
            if (row == rows || used + length > bytes) {
                closedir(listing);
                return i;
            }
            memcpy(names + used, name, (size_t)length);
            used += length;
            if (put_status(&here, name, found + row++, rows))
                error = EOVERFLOW;
        }
        if (listing)
            closedir(listing);
        if (error) {
            row = first;
            used = 0;
        }
        counts[i] = error ? -error : row - first;
        names += used;
        bytes -= used;
    }
    return count;
}

/* Go over plain files below the directory `root` that have these sizes and mtimes [ns]. */
long bulk_same(int root, long count, const char *names, const int64_t *sizes, const int64_t *mtimes)
{
    struct above above = BELOW(root);
    long i = 0;
    for (; i < count; i++, names += strlen(names) + 1) {
        struct stat is;
        int64_t mtime;
        if (status_below(&above, names, &is) || !S_ISREG(is.st_mode) || is.st_size != sizes[i] ||
            out_of_range(is.st_mtim, &mtime) || mtime != mtimes[i])
            break;
    }
    leave(&above);
    return i;
}

/* --- content ---------------------------------------------------------------------------------- */

static int write_all(int file, const uint8_t *data, int64_t length)
{
    while (length) {
        ssize_t written = write(file, data, (size_t)length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return -1;
        data += written;
        length -= written;
    }
    return 0;
}

static int set_mtime(int file, int64_t mtime)
{
    struct timespec time = {mtime / 1000000000, mtime % 1000000000};
    if (time.tv_nsec < 0) { /* before 1970 */
        time.tv_sec -= 1;
        time.tv_nsec += 1000000000;
    }
    return futimens(file, (struct timespec[2]){time, time});
}

/* Close a file that was written, since some file systems tell only now that it did not work. */
static int close_written(int file)
{
    return close(file) && errno != EINTR;
}

/* Make files below the directory `root` that are not there yet: from the `bytes` of `data` at
 * `offsets`, of `lengths`, with `modes`, and times [ns] where `mtimes` is not 0. Those who make them
 * have `umask`; each is given to `owner` (uid, gid), where that is not null. `found` gets two
 * numbers each: mtime, ctime [ns]. */
long bulk_create(int root, long count, const char *names, const uint8_t *data, int64_t bytes,
                 const int64_t *offsets, const int64_t *lengths, const int64_t *modes,
                 const int64_t *mtimes, int umask, const int64_t *owner, int64_t *found, int *error)
{
    long i = 0;
    for (; i < count; i++, names += strlen(names) + 1, found += 2) {
        struct stat is;
        mode_t mode = (mode_t)modes[i];
        if (!is_within(offsets[i], lengths[i], bytes)) {
            *error = OUTSIDE;
            break;
        }
        int file = open_below(root, names, O_WRONLY | O_CREAT | O_EXCL, mode);
        int bad = file < 0 || write_all(file, data + offsets[i], lengths[i]) ||
                  (owner && fchown(file, (uid_t)owner[0], (gid_t)owner[1])) ||
                  (mode & (mode_t)umask && fchmod(file, mode)) ||
                  (mtimes[i] && set_mtime(file, mtimes[i])) || fstat(file, &is);
        *error = errno;
        if (!bad && (out_of_range(is.st_mtim, found) || out_of_range(is.st_ctim, found + 1))) {
            *error = EOVERFLOW;
            bad = 1;
        }
        if (file >= 0 && close_written(file) && !bad) {
            *error = errno;
            bad = 1;
        }
        if (bad)
            break;
    }
    return i;
}

/* Replace the content of plain files below the directory `root`, in place, by the `bytes` of `data`
 * at `offsets`, of `lengths`. Modes and times stay. */
long bulk_overwrite(int root, long count, const char *names, const uint8_t *data, int64_t bytes,
                    const int64_t *offsets, const int64_t *lengths, int *error)
{
    for (long i = 0; i < count; i++, names += strlen(names) + 1) {
        struct stat is;
        if (!is_within(offsets[i], lengths[i], bytes)) {
            *error = OUTSIDE;
            return i;
        }
        int file = open_below(root, names, O_WRONLY | O_NONBLOCK, 0);
        int bad = file < 0 || fstat(file, &is);
        if (!bad && !S_ISREG(is.st_mode)) {
            errno = ENXIO;
            bad = 1;
        }
        bad = bad || write_all(file, data + offsets[i], lengths[i]) ||
              (lengths[i] < is.st_size && ftruncate(file, lengths[i])) ||
              futimens(file, (struct timespec[2]){is.st_atim, is.st_mtim});
        *error = errno;
        if (file >= 0 && close_written(file) && !bad) {
            *error = errno;
            bad = 1;
        }
        if (bad)
            return i;
    }
    return count;
}

/* Read the first `lengths` bytes of files below the directory `root` to `space`, of `bytes`, at
 * `offsets`, and tell their CRC32C. A link is no file; what is no plain file has an end, too. */
long bulk_read(int root, long count, const char *names, uint8_t *space, int64_t bytes,
               const int64_t *offsets, const int64_t *lengths, uint32_t *checksums, int *error)
{
    for (long i = 0; i < count; i++, names += strlen(names) + 1) {
        if (!is_within(offsets[i], lengths[i], bytes)) {
            *error = OUTSIDE;
            return i;
        }
        int file = open_below(root, names, O_RDONLY | O_NONBLOCK, 0);
        int64_t position = 0;
        ssize_t came = file;
        while (came >= 0 && position < lengths[i]) {
            came = read(file, space + offsets[i] + position, (size_t)(lengths[i] - position));
            if (came < 0 && errno == EINTR)
                came = 0;
            else if (came <= 0)
                break;
            position += came;
        }
        *error = came < 0 ? errno : SHORT;
        if (file >= 0)
            close(file);
        if (came < 0 || position < lengths[i])
            return i;
        checksums[i] = crc32c(space + offsets[i], (size_t)lengths[i], 0);
    }
    return count;
}

/* Return the first part of `data`, of `bytes`, whose CRC32C is not the one in `checksums`. */
long bulk_compare(long count, const uint8_t *data, int64_t bytes, const int64_t *offsets,
                  const int64_t *lengths, const int64_t *checksums)
{
    for (long i = 0; i < count; i++)
        if (!is_within(offsets[i], lengths[i], bytes) ||
            crc32c(data + offsets[i], (size_t)lengths[i], 0) != checksums[i])
            return i;
    return count;
}

/* --- names ------------------------------------------------------------------------------------ */

#define MAX_PLAIN_BYTES 255
#define MAX_PLAIN_PARTS 64

static int lower(char c)
{
    return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : (uint8_t)c;
}

/* Tell whether a path needs no second look: a rule of bundle/names.py, whose bounds these are. */
static int is_plain(const char *path)
{
    int parts = 1, begins = 1, length = 0;
    for (; path[length]; length++) {
        int c = lower(path[length]);
        int is_letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (c == '/' ? begins : !is_letter && (begins || c != '.') && !strchr("_+=@-", c))
            return 0;
        begins = c == '/';
        parts += begins;
    }
    return !begins && parts <= MAX_PLAIN_PARTS && length <= MAX_PLAIN_BYTES;
}

/* Tell whether `name` may stand behind `last` in a list of a whole tree: in a directory that was
 * listed and not left since, and behind those before it there, whatever the case of letters. */
static int follows(const char *last, int last_is_dir, const char *name)
{
    const char *slash = strrchr(name, '/');
    size_t above = slash ? (size_t)(slash - name) : 0;
    if (above && (strncmp(last, name, above) || (last[above] && last[above] != '/')))
        return 0;
    if (above && !last[above])
        return last_is_dir; /* the first in it */
    const char *before = last + above + (above != 0), *now = name + above + (above != 0);
    while (*before && *before != '/' && lower(*before) == lower(*now))
        before++, now++;
    return *now && (!*before || *before == '/' || lower(*before) < lower(*now));
}

/* Go over the members of a tree, a directory before what is in it, as far as they are plain and no
 * two can be one file anywhere. */
long bulk_tree(long count, const char *names, const int64_t *are_dirs)
{
    const char *last = "";
    for (long i = 0; i < count; i++, last = names, names += strlen(names) + 1)
        if (!is_plain(names) || (i ? !follows(last, are_dirs[i - 1] != 0, names)
                                   : strchr(names, '/') != NULL))
            return i;
    return count;
}

/* --- tar headers ------------------------------------------------------------------------------ */

#define BLOCK 512
#define NAME_BYTES 100
#define MAX_OCTAL 077777777777 /* of 11 digits */

static void octal(uint8_t *field, int digits, uint64_t value)
{
    field[digits] = 0;
    while (digits--) {
        field[digits] = (uint8_t)('0' + (value & 7));
        value >>= 3;
    }
}

/* Write a member's header, as docs/format.md has it, if it needs no more than one block. `name` has
 * no "/" at its end. */
static int plain_header(uint8_t *block, const char *name, int is_dir, int64_t size, int64_t mode,
                        int64_t mtime)
{
    size_t length = strlen(name);
    if (mtime || size < 0 || size > MAX_OCTAL || length + (size_t)is_dir > NAME_BYTES)
        return 0;
    for (size_t i = 0; i < length; i++)
        if ((uint8_t)name[i] >= 0x80)
            return 0;
    memset(block, 0, BLOCK);
    memcpy(block, name, length);
    if (is_dir)
        block[length] = '/';
    octal(block + 100, 7, (uint64_t)mode);
    octal(block + 108, 7, 0);
    octal(block + 116, 7, 0);
    octal(block + 124, 11, (uint64_t)size);
    octal(block + 136, 11, 0);
    memset(block + 148, ' ', 8);
    block[156] = is_dir ? '5' : '0';
    memcpy(block + 257, "ustar\0" "00", 8);
    uint32_t sum = 0;
    for (int i = 0; i < BLOCK; i++)
        sum += block[i];
    octal(block + 148, 6, sum);
    return 1;
}

/* Write the headers of members one after the other. Ends at one that needs more than one block. */
long bulk_headers(long count, const char *names, const int64_t *are_dirs, const int64_t *sizes,
                  const int64_t *modes, const int64_t *mtimes, uint8_t *blocks)
{
    for (long i = 0; i < count; i++, names += strlen(names) + 1, blocks += BLOCK)
        if (!plain_header(blocks, names, are_dirs[i] != 0, sizes[i], modes[i], mtimes[i]))
            return i;
    return count;
}

/* Go over members as they lie in a bundle, and take each one's header, content of the CRC32C
 * `checksums` and padding into `*checksum`, the bundle's so far. Ends as `bulk_headers` does. */
long bulk_join(long count, const char *names, const int64_t *are_dirs, const int64_t *sizes,
               const int64_t *modes, const int64_t *mtimes, const int64_t *checksums,
               uint32_t *checksum)
{
    static const uint8_t zeros[BLOCK];
    uint8_t block[BLOCK];
    for (long i = 0; i < count; i++, names += strlen(names) + 1) {
        if (!plain_header(block, names, are_dirs[i] != 0, sizes[i], modes[i], mtimes[i]))
            return i;
        *checksum = crc32c(block, BLOCK, *checksum);
        *checksum = joined(*checksum, (uint32_t)checksums[i], (uint64_t)sizes[i]);
        *checksum = crc32c(zeros, (size_t)(-sizes[i] & (BLOCK - 1)), *checksum);
    }
    return count;
}
