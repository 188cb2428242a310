// Package fair shares what there isn't enough of, so that no user or namespace keeps others out or exhausts memory.
//
// A Counter bounds what is used under several keys at once, and refuses what is too much. With Turns, what finds no room waits, and the
// keys take turns. A Budget makes room for a newcomer: the key that has most gives way. Shares are for a controller's workers: with
// OfNamespaces, each namespace keeps only a part of them busy, and its other objects wait without a worker.
//
// Keys name those who share: users, namespaces, addresses. What is kept for a key goes with its last holder and waiter, so that memory
// is bounded by what is held, and not by how many keys there have been. Nothing in here starts a goroutine or reads a clock. All of it
// is safe for concurrent use.
package fair
