// Package console tests the gateway's console in a browser: what its users see and do, that no
// other page can use it, and how much of it is loaded.
package console
