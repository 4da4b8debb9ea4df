package memory

// Container is container.
var Container = container
