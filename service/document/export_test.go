package document

// IsWhole is isWhole.
var IsWhole = isWhole
