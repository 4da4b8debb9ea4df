// Package once shows that retryable writes are carried out once, whatever happens to connections
// and servers. It has tests only.
package once
