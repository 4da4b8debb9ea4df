// Package contract runs the experiment of internal/contract with the clients for TypeScript and
// Python, each in a process of its own, through a real gateway in real time.
package contract
