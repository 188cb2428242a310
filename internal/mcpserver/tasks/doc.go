// Package tasks implements the Tasks extension of the Model Context Protocol (io.modelcontextprotocol/tasks): a client that declares it
// gets a task instead of waiting for a call that takes long, and asks for its state, answers its questions and cancels it by the task's id.
//
// A task is a ToolCall. Its id has the namespace, the name and the UID of the call, and 128 random bits, of which an annotation of the call
// has the hash. Input is requests of clients and the calls that they are about; output is the states of tasks. Start reading at service.go;
// offer.go decides when a client gets a task, and approvals.go has people decide about calls that wait for it.
//
// Invariants: the server keeps nothing, so that every replica answers, also after a restart; every request to the Kubernetes API uses the
// credentials of the requester; without the right to read a call, or without the bits of its id, a task doesn't exist; a decision counts
// only for the digest that the client was shown, and only if admission lets the requester decide.
package tasks
