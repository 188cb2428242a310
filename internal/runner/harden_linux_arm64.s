#include "textflag.h"

// A signal handler that returns at once.
TEXT drop<>(SB), NOSPLIT|NOFRAME, $0
	RET

DATA ·dropSignal(SB)/8, $drop<>(SB)
GLOBL ·dropSignal(SB), NOPTR|RODATA, $8

// A signal handler of the C calling convention: signal, siginfo, context. It returns if siginfo's si_code is negative.
TEXT dropNegative<>(SB), NOSPLIT|NOFRAME, $0
	MOVW 8(R1), R3
	CMPW $0, R3
	BLT sent
	MOVD ·goHandler(SB), R3
	JMP (R3)

sent:
	RET

DATA ·dropSent(SB)/8, $dropNegative<>(SB)
GLOBL ·dropSent(SB), NOPTR|RODATA, $8
