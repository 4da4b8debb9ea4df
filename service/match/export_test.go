package match

var Whole = whole
