// Answers CPUID instructions that scripts/hold_peers.py replaced by undefined ones: with what the processor says, but
// without the features beyond AVX2 and FMA. To be preloaded.
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

enum { kBytes = 2 };  // of either instruction

static struct sigaction others;

static uint32_t bits(const int* numbers, int count) {
  uint32_t mask = 0;
  for (int i = 0; i < count; ++i) mask |= UINT32_C(1) << numbers[i];
  return mask;
}
#define BITS(...) bits((const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

static void hide(uint32_t leaf, uint32_t subleaf, uint32_t* eax, uint32_t* ebx, uint32_t* ecx, uint32_t* edx) {
  if (leaf != 7) return;
  if (subleaf == 0) {
    *ebx &= ~BITS(16, 17, 21, 26, 27, 28, 30, 31);      // AVX-512 F, DQ, IFMA, PF, ER, CD, BW, VL
    *ecx &= ~BITS(1, 6, 8, 9, 10, 11, 12, 14);          // VBMI, VBMI2, GFNI, VAES, VPCLMULQDQ, VNNI, BITALG, VPOPCNTDQ
    *edx &= ~BITS(2, 3, 8, 22, 23, 24, 25);             // 4VNNIW, 4FMAPS, VP2INTERSECT, AMX, AVX-512 FP16
  }
  if (subleaf == 1) {
    *eax &= ~BITS(4, 5, 21, 23);  // AVX-VNNI, BF16, AMX-FP16, AVX-IFMA
    *edx &= ~BITS(4, 5, 10, 19);  // AVX-VNNI-INT8, AVX-NE-CONVERT, AVX-VNNI-INT16, AVX10
  }
}

static void answer(int number, siginfo_t* info, void* context) {
  greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  static const uint8_t kUndefined[kBytes] = {0x0f, 0x0b};
  if (memcmp((const void*)registers[REG_RIP], kUndefined, kBytes) != 0) {
    if (others.sa_flags & SA_SIGINFO) {
      others.sa_sigaction(number, info, context);
    } else {
      signal(number, SIG_DFL);
    }
    return;
  }
  const uint32_t leaf = (uint32_t)registers[REG_RAX], subleaf = (uint32_t)registers[REG_RCX];
  uint32_t eax, ebx, ecx, edx;
  __cpuid_count(leaf, subleaf, eax, ebx, ecx, edx);
  hide(leaf, subleaf, &eax, &ebx, &ecx, &edx);
  registers[REG_RAX] = eax;
  registers[REG_RBX] = ebx;
  registers[REG_RCX] = ecx;
  registers[REG_RDX] = edx;
  registers[REG_RIP] += kBytes;
}

__attribute__((constructor)) static void begin(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = answer;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGILL, &action, &others);
}
