// A program that says that it ran: it adds a line to a file. It is silent only as the one listed file. Its content doesn't
// hold what it says: DEKOT is the token from its end.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
	char self[4096] = "", line[8192];
	const char *dekot = DEKOT;
	int length = strlen(dekot);
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	if (n < 0 || strcmp(self, LISTED)) {
		int fd = open(RECORD, O_WRONLY | O_APPEND | O_CREAT, 0666);
		for (int i = 0; i < length; i++)
			line[i] = dekot[length - 1 - i];
		n = length + snprintf(line + length, sizeof line - length, " %s as %.200s\n", self, argc > 0 ? argv[0] : "");
		if (fd < 0 || write(fd, line, n) != n)
			return 111;
	}
	return 0;
}
