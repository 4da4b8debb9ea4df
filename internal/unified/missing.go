package unified

import (
	"maps"
	"slices"

	"github.com/mooringdb/mooring/core/bson"
)

// What the driver, or this runner, does not have yet. A case that needs any of it is skipped with
// that reason.
const (
	needsListing = "lists of objects for databases, collections or indexes, which drivers " +
		"may leave out"
	needsGridFS     = "GridFS"
	needsEncryption = "client-side encryption"
	needsCount      = "a helper for count, which is deprecated"
	needsMapReduce  = "a helper for mapReduce, which is deprecated"
)

var missingOperations = map[string]string{
	"listCollectionObjects": needsListing, "listDatabaseObjects": needsListing,
	"listIndexObjects": needsListing,
	"upload":           needsGridFS, "download": needsGridFS, "downloadByName": needsGridFS,
	"delete":       needsGridFS,
	"deleteByName": needsGridFS, "renameByName": needsGridFS,
	"drop":      needsGridFS,
	"mapReduce": needsMapReduce, "count": needsCount,
	"createDataKey": needsEncryption, "rewrapManyDataKey": needsEncryption,
	"deleteKey": needsEncryption, "getKey": needsEncryption,
	"getKeys": needsEncryption, "addKeyAltName": needsEncryption,
	"removeKeyAltName": needsEncryption,
	"getKeyByAltName":  needsEncryption, "encrypt": needsEncryption, "decrypt": needsEncryption,
}

// missingArguments are arguments of operations, and options of entities.
var missingArguments = map[string]string{
	"autoEncryptOpts": needsEncryption,
}

var missingEntities = map[string]string{
	"bucket": needsGridFS, "clientEncryption": needsEncryption,
}

// missingOptions are options of connection strings that the driver will never have.
var missingOptions = map[string]string{
	"waitQueueSize":     "an option that CMAP has deprecated",
	"waitQueueMultiple": "an option that CMAP has deprecated",
}

// survey looks for what a test needs.
type survey struct {
	lacking map[string]string // entities that cannot be made, and why
	reason  string
}

// missing says what a test needs that is not there, or is empty. Entities that cannot be made
// matter only to tests that use them, unless all matter.
func (f *File) missing(test Test, all bool) string {
	s := survey{lacking: map[string]string{}}
	s.entities(f.CreateEntities)
	for _, name := range slices.Sorted(maps.Keys(s.lacking)) {
		if all {
			s.need(s.lacking[name])
		}
	}
	s.operations(test.Operations)
	for _, expected := range slices.Concat(test.ExpectEvents, test.ExpectLogMessages,
		test.ExpectTracing) {
		s.need(s.lacking[text(expected, "client")])
	}
	return s.reason
}

func (s *survey) need(reason string) {
	if s.reason == "" {
		s.reason = reason
	}
}

// entities finds those that cannot be made; what they are used for decides.
func (s *survey) entities(entities []bson.Raw) {
	for _, entity := range entities {
		kind := entity.FirstKey()
		spec := document(entity, kind)
		of := survey{lacking: s.lacking}
		of.need(missingEntities[kind])
		of.need(s.lacking[text(spec, "client")])
		of.need(s.lacking[text(spec, "database")])
		of.client(spec)
		of.arguments(document(spec, "sessionOptions"))
		of.arguments(spec)
		if of.reason != "" {
			s.lacking[text(spec, "id")] = of.reason
		}
	}
}

func (s *survey) client(spec bson.Raw) {
	for key := range document(spec, "uriOptions").All() {
		s.need(missingOptions[key])
	}
}

func (s *survey) operations(operations []operation) {
	for _, op := range operations {
		s.need(missingOperations[op.name])
		s.need(s.lacking[op.object])
		s.arguments(op.arguments)
		for _, v := range op.arguments.All() {
			if name, ok := v.Str(); ok {
				s.need(s.lacking[name])
			}
		}
		switch op.name {
		case "createEntities":
			s.entities(documents(op.arguments, "entities"))
		case "runOnThread":
			s.operations([]operation{newOperation(document(op.arguments, "operation"))})
		case "withTransaction":
			for _, doc := range documents(op.arguments, "callback") {
				s.operations([]operation{newOperation(doc)})
			}
		}
	}
}

func (s *survey) arguments(doc bson.Raw) {
	for key := range doc.All() {
		s.need(missingArguments[key])
	}
}
