package metadata

// Release is release.
var Release = release
