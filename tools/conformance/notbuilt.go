package main

import "strings"

// notBuilt lists the files of the specifications that no runner walks yet, by folder or file name
// prefix, and why. A file that has no case and no row here is an error. So is a file that has cases
// and a row.
var notBuilt = map[string]string{
	"client-side-encryption/":     "client-side encryption",
	"gridfs/":                     "GridFS",
	"unified-test-format/schema-": "nothing: these are the format's schemas, not tests",
}

// walked represents what the runners made of the files in the specifications' folder.
type walked struct {
	missing map[string][]string // files that no runner walks, by their row in notBuilt
	errors  []string            // files without a case and without a row, and stale rows
}

// compare holds the files that are there against those that have a case. Paths are relative to the
// specifications' folder.
func compare(files []string, hasCase map[string]bool) walked {
	w := walked{missing: map[string][]string{}}
	for _, file := range files {
		row := rowOf(file)
		switch {
		case hasCase[file] && row != "":
			w.errors = append(w.errors,
				file+" has cases, but is listed as not built yet under "+row)
		case hasCase[file]:
		case row == "":
			w.errors = append(w.errors,
				file+" is walked by no runner, and not listed as not built yet")
		default:
			w.missing[row] = append(w.missing[row], file)
		}
	}
	return w
}

func rowOf(file string) string {
	for prefix := range notBuilt {
		if strings.HasPrefix(file, prefix) {
			return prefix
		}
	}
	return ""
}
