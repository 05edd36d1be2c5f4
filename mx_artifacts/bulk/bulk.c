/* What is done to thousands of small files at once, without the interpreter in between.
 *
 * A plain library, called through ctypes, so that building it takes a C compiler and no headers of
 * Python's, and a call releases the interpreter's lock. Each function does what the Python next to
 * it does (the module that calls it), which stays the reference and is what runs where this was not
 * built; tests compare the two.
 *
 * Lists come as columns. Names are strings one after the other, each with its NUL. A function that
 * works through a list returns how many items it has done; if those are not all, `*error` says why
 * the next one failed: an errno, or 0 for what the function's comment says.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* --- CRC32C, with the processor's instruction ------------------------------------------------- */

#define POLYNOMIAL 0x82f63b78u /* Castagnoli, RFC 3720 appendix B.4, bits in reflected order */

#if defined(__x86_64__)

#include <nmmintrin.h>
#define CHECKSUMMING __attribute__((target("sse4.2")))
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

CHECKSUMMING static uint32_t crc32c(const uint8_t *data, size_t length, uint32_t value)
{
    uint32_t sum = ~value;
    for (; length >= 8; data += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        sum = of_8_bytes(sum, word);
    }
    for (; length; data++, length--)
        sum = of_byte(sum, *data);
    return ~sum;
}

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

/* The checksum of two byte strings one after the other. */
static uint32_t joined(uint32_t first, uint32_t second, uint64_t second_length)
{
    for (int n = 0; second_length; n++, second_length >>= 1)
        if (second_length & 1)
            first = product(powers[n], first);
    return first ^ second;
}

/* Get ready; return the version of these functions' arguments, 0 if this processor will not do.
 * To be called once, before any other. */
int bulk_begin(void)
{
    if (!has_instruction())
        return 0;
    powers[0] = 1u << (31 - 8);
    for (int n = 1; n < 64; n++)
        powers[n] = product(powers[n - 1], powers[n - 1]);
    return 1;
}

/* --- files ------------------------------------------------------------------------------------ */

static int64_t nanoseconds(struct timespec time)
{
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Tell the status of `count` names below the directory `root`, links not followed: six columns of
 * `count`, device, inode, mode, size, mtime, ctime [ns]. What cannot be looked at has zeros. */
void bulk_status(int root, long count, const char *names, int64_t *found)
{
    for (long i = 0; i < count; i++, names += strlen(names) + 1, found++) {
        struct stat is;
        if (fstatat(root, names, &is, AT_SYMLINK_NOFOLLOW))
            memset(&is, 0, sizeof is);
        found[0] = (int64_t)is.st_dev;
        found[count] = (int64_t)is.st_ino;
        found[2 * count] = is.st_mode;
        found[3 * count] = is.st_size;
        found[4 * count] = nanoseconds(is.st_mtim);
        found[5 * count] = nanoseconds(is.st_ctim);
    }
}

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

/* Make files below the directory `root` that are not there yet: from `data` at `offsets`, of
 * `lengths`, with `modes`, and times [ns] where `mtimes` is not 0. Those who make them have `umask`;
 * with `uid` >= 0 each is given to it and `gid`. `found` gets two columns: mtime, ctime [ns]. */
long bulk_create(int root, long count, const char *names, const uint8_t *data,
                 const int64_t *offsets, const int64_t *lengths, const int64_t *modes,
                 const int64_t *mtimes, int umask, int64_t uid, int64_t gid, int64_t *found,
                 int *error)
{
    for (long i = 0; i < count; i++, names += strlen(names) + 1, found += 2) {
        struct stat is;
        mode_t mode = (mode_t)modes[i];
        int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
        int file = openat(root, names, flags, mode);
        int bad = file < 0 || write_all(file, data + offsets[i], lengths[i]) ||
                  (uid >= 0 && fchown(file, (uid_t)uid, (gid_t)gid)) ||
                  (mode & (mode_t)umask && fchmod(file, mode));
        if (!bad && mtimes[i]) {
            struct timespec time = {mtimes[i] / 1000000000, mtimes[i] % 1000000000};
            if (time.tv_nsec < 0) {
                time.tv_sec -= 1;
                time.tv_nsec += 1000000000;
            }
            bad = futimens(file, (struct timespec[2]){time, time});
        }
        if (bad || fstat(file, &is)) {
            *error = errno;
            if (file >= 0)
                close(file);
            return i;
        }
        close(file);
        found[0] = nanoseconds(is.st_mtim);
        found[1] = nanoseconds(is.st_ctim);
    }
    return count;
}

/* Read the first `lengths` bytes of files below the directory `root` to `space` at `offsets`, and
 * tell their CRC32C. A link is no file. A file that is shorter ends it with the error 0. */
long bulk_read(int root, long count, const char *names, uint8_t *space, const int64_t *offsets,
               const int64_t *lengths, uint32_t *checksums, int *error)
{
    for (long i = 0; i < count; i++, names += strlen(names) + 1) {
        int file = openat(root, names, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
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
        *error = came < 0 ? errno : 0;
        if (file >= 0)
            close(file);
        if (came < 0 || position < lengths[i])
            return i;
        checksums[i] = crc32c(space + offsets[i], (size_t)lengths[i], 0);
    }
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
    if (mtime || size < 0 || size > MAX_OCTAL || length + (is_dir != 0) > NAME_BYTES)
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

/* Write the headers of members one after the other. The first that needs more than one block ends
 * it with the error 0. */
long bulk_headers(long count, const char *names, const int64_t *are_dirs, const int64_t *sizes,
                  const int64_t *modes, const int64_t *mtimes, uint8_t *blocks, int *error)
{
    *error = 0;
    for (long i = 0; i < count; i++, names += strlen(names) + 1, blocks += BLOCK)
        if (!plain_header(blocks, names, (int)are_dirs[i], sizes[i], modes[i], mtimes[i]))
            return i;
    return count;
}

/* Go over members as they lie in a bundle, and take each one's header, content of the CRC32C
 * `checksums` and padding into `*checksum`, the bundle's so far. Ends as `bulk_headers` does. */
long bulk_join(long count, const char *names, const int64_t *are_dirs, const int64_t *sizes,
               const int64_t *modes, const int64_t *mtimes, const int64_t *checksums,
               uint32_t *checksum, int *error)
{
    static const uint8_t zeros[BLOCK];
    uint8_t block[BLOCK];
    *error = 0;
    for (long i = 0; i < count; i++, names += strlen(names) + 1) {
        if (!plain_header(block, names, (int)are_dirs[i], sizes[i], modes[i], mtimes[i]))
            return i;
        *checksum = crc32c(block, BLOCK, *checksum);
        *checksum = joined(*checksum, (uint32_t)checksums[i], (uint64_t)sizes[i]);
        *checksum = crc32c(zeros, (size_t)(-sizes[i] & (BLOCK - 1)), *checksum);
    }
    return count;
}
