#include "textflag.h"

// A signal handler that returns at once.
TEXT drop<>(SB), NOSPLIT|NOFRAME, $0
	RET

DATA ·dropSignal(SB)/8, $drop<>(SB)
GLOBL ·dropSignal(SB), NOPTR|RODATA, $8
