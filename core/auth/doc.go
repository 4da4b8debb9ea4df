// Package auth authenticates connections to MongoDB servers. A Mechanism holds the credential of
// one client and makes a Conversation for each connection, which computes bytes from bytes without
// I/O. An Authenticator puts the conversation into commands (saslStart, saslContinue, authenticate)
// and runs them over a Runner, which is a connection.
//
// The package opens no socket, reads no file and starts no goroutine. Mechanisms that need the
// network (MONGODB-AWS, MONGODB-OIDC, GSSAPI) are in packages below it, and do I/O only in
// Mechanism.Begin.
//
// # Authenticating one connection
//
//	state, err := authenticator.Start(auth.Target{Address: addr})
//	err = state.AppendHello(helloBuilder)           // saslSupportedMechs, speculativeAuthenticate
//	…the connection sends its hello and reads the reply…
//	err = state.Authenticate(ctx, runner, reply)    // finishes the conversation, or begins one
//	…later, after error 391…
//	err = state.Reauthenticate(ctx, runner)         // SASL commands only: no speculation
//
// Every error of State is an *Error. It names the mechanism, the user and the reason, and never a
// secret.
//
// # Writing a mechanism
//
// A mechanism is shared by all connections of a client, so its methods may be called from many
// goroutines at once. Caches of keys, credentials and tokens live in it. State calls it like this:
//
//  1. Speculate, before hello. It must not block. It returns nil if the mechanism has nothing to
//     send yet: an OIDC mechanism without a cached token does. If the server's hello has no answer
//     to it, the conversation is dropped and nothing is told to the mechanism; that is not a
//     failure.
//  2. Begin, after hello, if no speculative conversation was answered. It may block until ctx ends,
//     to fetch credentials or a token. It must not hold a lock while it does, unless only the
//     mechanism's own callers wait for that lock.
//  3. Refused, if a conversation failed, with the error: the server refused it or broke its rules,
//     or the connection broke. If it returns true and the connection is whole, State begins one
//     more conversation, once: an OIDC mechanism drops a cached token that was refused with code 18
//     and returns true.
//  4. Refused with a *mongoerr.CommandError of code 391, before a reauthentication, with the
//     conversation that the connection had authenticated by. The result is ignored then. A
//     mechanism drops the token of that conversation.
//
// A conversation keeps what it authenticated with (a token, for example), so that Refused can
// compare it with the cache.
package auth
