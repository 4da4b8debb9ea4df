// Package docdb runs a real engine for the lab: PostgreSQL with the DocumentDB extension, whose
// commands are SQL functions on BSON. Its front speaks MongoDB's protocol as the primary of a
// replica set with one member: a transaction is a connection of its own at REPEATABLE READ, a
// cursor is the engine's, a change stream is read from a logical replication slot, and a retryable
// write is remembered in the SQL transaction that makes it. So isolation, conflicts, and the order
// of changes are the engine's. The front makes no elections and drops no connections: the scripted
// deployment before it does.
package docdb
