// Package drill causes faults and checks what the gateway shows of each. It has only tests.
package drill
