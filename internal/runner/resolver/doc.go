// Package resolver is the DNS resolver of one call, and knows which names an address was given out for.
//
// Its input are compiled rules (package network), the nameservers that it asks, the search list of the command's
// resolv.conf, and entries of /etc/hosts. The gate of the sandbox brings it streams (DNS over TCP) and datagrams of the
// command, and asks Decide for each connection. An address counts as looked up for the time to live of the answer and a short
// grace. The answer gives out addresses for at least minTTL, since clients keep them without regard to their time to live (Java
// for 30 s, curl for 60 s). Addresses in the cluster are given to other pods too soon for that.
//
// # Answers
//
//   - A and AAAA of a name that may be looked up are asked of the nameservers. The addresses at the end of a chain of
//     aliases count for the asked name: the names between needn't be listed, because whoever listed the first trusts its
//     owner to say where it leads. Where a name of the cluster leads into the cluster, the rules must allow the last name
//     too. The chain itself isn't passed on; the answer has the asked name for its owner.
//   - An address that the rules deny is left out of the answer, and the refusal is counted. If none is left, there is no
//     data.
//   - Other types of such a name, HTTPS, SVCB, MX, TXT and SRV among them, have no data (NOERROR): every client then goes
//     on with A and AAAA. They aren't asked, as what they hold leads to names and addresses that nobody listed. Where all
//     names may be looked up, records of the asked type are passed on, bounded; the rest of the answer isn't.
//   - A name that may not be looked up doesn't exist (NXDOMAIN), and isn't asked. glibc, musl, Go, Java, Python and node
//     then fail at once and say that the name isn't known, and go on in a search list. With REFUSED or SERVFAIL musl waits
//     for its timeout of 5 s and says "try again", glibc and what is built on it say "temporary failure" (except for
//     REFUSED on a stream), and Go says "server misbehaving". There is no SOA record with it, so that it isn't cached. A
//     client that speaks EDNS gets the rule as an extended error (RFC 8914).
//   - A name that a search list made of another one is refused alike, but is counted only if the other name was never
//     asked: nobody meant packages.example.com.ns.svc.cluster.local.
//   - Reverse lookups find nothing, and aren't counted: programs make them without being asked to.
//   - localhost and names below it are loopback (RFC 6761). ANY and transfers are NOTIMP, other classes REFUSED, a query
//     with other than one question FORMERR. If no nameserver answers in time, SERVFAIL, with an extended
//     error that names the nameserver and what came of it.
//
// # Invariants
//
//   - The nameservers are asked for names that Lookup allows, and for nothing else; the name is in lower case, and nothing
//     of the client's message is passed on but the name and the type.
//   - Of a nameserver's answer only the answer section counts, and in it only the chain from the asked name.
//   - Everything is bounded: streams, queries under way, sizes, time, records, chains, given-out addresses, counts.
//   - After Close nothing of the resolver runs, and no query is answered. Each datagram is replied to once all the same.
//
// The package must not decide on its own what is allowed, read files, or listen on anything that the caller didn't bring.
package resolver
