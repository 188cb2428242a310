// Prints what http://HOST/hello has, HOST being the argument. It is for a C library whose resolver is another one than glibc's.
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv) {
	struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM};
	if (argc != 2) return 2;
	int error = getaddrinfo(argv[1], "80", &hints, &found);
	if (error) return printf("look up: %s\n", gai_strerror(error)), 1;
	for (struct addrinfo *a = found; a; a = a->ai_next) {
		char text[4096];
		size_t length = 0;
		ssize_t n;
		int s = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
		if (s < 0 || connect(s, a->ai_addr, a->ai_addrlen)) {
			perror("connect");
			continue;
		}
		dprintf(s, "GET /hello HTTP/1.0\r\nHost: %s\r\n\r\n", argv[1]);
		while (length < sizeof text - 1 && (n = read(s, text + length, sizeof text - 1 - length)) > 0) length += n;
		text[length] = 0;
		char *body = strstr(text, "\r\n\r\n");
		return fputs(body ? body + 4 : text, stdout), !body;
	}
	return 1;
}
