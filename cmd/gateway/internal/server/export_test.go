package server

// Network is network.
var Network = network
