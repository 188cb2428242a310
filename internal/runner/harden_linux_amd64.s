#include "textflag.h"

// A signal handler that returns at once.
TEXT drop<>(SB), NOSPLIT|NOFRAME, $0
	RET

DATA ·dropSignal(SB)/8, $drop<>(SB)
GLOBL ·dropSignal(SB), NOPTR|RODATA, $8

// A signal handler of the C calling convention: signal, siginfo, context. It returns if siginfo's si_code is negative.
TEXT dropNegative<>(SB), NOSPLIT|NOFRAME, $0
	MOVL 8(SI), AX
	CMPL AX, $0
	JLT sent
	MOVQ ·goHandler(SB), AX
	JMP AX

sent:
	RET

DATA ·dropSent(SB)/8, $dropNegative<>(SB)
GLOBL ·dropSent(SB), NOPTR|RODATA, $8
