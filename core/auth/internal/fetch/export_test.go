package fetch

var Network = network
