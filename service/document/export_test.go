package document

// IsWhole is isWhole.
var IsWhole = isWhole

// FindOptions is findOptions.
var FindOptions = findOptions
