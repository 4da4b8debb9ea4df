// Package attack has what hostile clients do to a gateway, as tests: each takes more than a client
// should, and the test says what that costs the gateway and the clients beside it. It knows the
// gateway as a process only. Short forms run with all tests; `make attack` runs the whole ones,
// with the attacker on one processor and the gateway on another, and prints a table.
package attack
