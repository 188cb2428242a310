// Package stream reads the output of calls through the API server, as any client does, and knows streams of which every byte can
// be checked. A Follower goes on at its offset after every end of an answer, clean or broken, so that tests can break whatever
// stands between it and the process.
package stream
