package deployment

import (
	"slices"
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

func (h *host) aggregate(cmd *request) (reply, error) {
	sc, err := newScope(cmd.Body, document(cmd.Body, "collation"))
	if err != nil {
		return reply{}, err
	}
	stages, _ := field(cmd.Body, "pipeline").Array()
	level, _ := field(cmd.Body, "readConcern", "level").Str()
	for stage := range stages.Documents() {
		if level == "linearizable" && (stage.Has("$out") || stage.Has("$merge")) {
			return reply{}, failure.InvalidOptions.Errorf(
				"%s cannot be used with a linearizable read concern", stage.FirstKey())
		}
	}
	if !cmd.Body.Has("cursor") && !cmd.Body.Has("explain") {
		return reply{}, failure.FailedToParse.Errorf(
			"The 'cursor' option is required, except for aggregate with the explain argument")
	}
	if all := slices.Collect(stages.Documents()); len(all) > 0 && all[0].Has("$changeStream") {
		if cmd.transaction != nil {
			return reply{}, failure.OperationNotSupportedInTransaction.Errorf(
				"$changeStream cannot run within a multi-document transaction.")
		}
		return h.openStream(cmd, document(all[0], "$changeStream"), all[1:])
	}
	p := pipeline{
		store: cmd.store, scope: sc, database: cmd.Database,
		namespace: namespace(cmd), bypass: cmd.bypasses(),
	}
	p.store.mu.Lock()
	found, err := p.runLocked(namespace(cmd), field(cmd.Body, "hint"), stages)
	p.store.mu.Unlock()
	if err != nil {
		return reply{}, err
	}
	c := &cursor{namespace: namespace(cmd), rest: found}
	return h.first(cmd, c, field(cmd.Body, "cursor", "batchSize"), false)
}

// pipeline holds the state of an aggregation.
type pipeline struct {
	store     *store
	scope     scope
	database  string
	namespace string
	bypass    bool // no validator is asked
}

func (p *pipeline) runLocked(
	namespace string, hint bson.Value, stages bson.Array,
) ([]bson.Raw, error) {
	docs, err := p.store.findLocked(namespace, query{hint: hint})
	if err != nil {
		return nil, err
	}
	return p.stagesLocked(docs, slices.Collect(stages.Documents()))
}

func (p *pipeline) stagesLocked(docs []bson.Raw, stages []bson.Raw) ([]bson.Raw, error) {
	for _, stage := range stages {
		name := stage.FirstKey()
		var err error
		if run, ok := pipelineStages[name]; ok {
			docs, err = run(p, docs, field(stage, name))
		} else if run, ok := documentStages[name]; ok {
			docs, err = p.each(docs, field(stage, name), run)
		} else {
			err = failure.UnknownStage.Errorf("Unrecognized pipeline stage name: '%s'", name)
		}
		if err != nil {
			return nil, err
		}
	}
	return docs, nil
}

func (p *pipeline) each(
	docs []bson.Raw, argument bson.Value,
	run func(s scope, doc bson.Raw, argument bson.Value) (bson.Raw, error),
) ([]bson.Raw, error) {
	out := make([]bson.Raw, len(docs))
	for i, doc := range docs {
		var err error
		if out[i], err = run(p.scope, doc, argument); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// stage runs one stage of a pipeline. The caller holds the store's lock.
type stage = func(p *pipeline, docs []bson.Raw, argument bson.Value) ([]bson.Raw, error)

// pipelineStages are those that are known, besides documentStages.
var pipelineStages = map[string]stage{
	"$match": func(p *pipeline, docs []bson.Raw, argument bson.Value) ([]bson.Raw, error) {
		filter, _ := argument.Document()
		return p.scope.filtered(docs, filter)
	},
	"$sort": func(p *pipeline, docs []bson.Raw, argument bson.Value) ([]bson.Raw, error) {
		order, _ := argument.Document()
		return docs, p.scope.sortBy(docs, order)
	},
	"$limit": func(_ *pipeline, docs []bson.Raw, argument bson.Value) ([]bson.Raw, error) {
		n, _ := argument.AsInt64()
		return docs[:min(n, int64(len(docs)))], nil
	},
	"$skip": func(_ *pipeline, docs []bson.Raw, argument bson.Value) ([]bson.Raw, error) {
		n, _ := argument.AsInt64()
		return docs[min(n, int64(len(docs))):], nil
	},
	"$group": func(_ *pipeline, docs []bson.Raw, argument bson.Value) ([]bson.Raw, error) {
		if group, _ := argument.Document(); string(group) != string(countAll) {
			return nil, failure.BadValue.Errorf("$group only counts here")
		}
		if len(docs) == 0 {
			return nil, nil
		}
		return []bson.Raw{bson.NewBuilder(nil).Int32("_id", 1).Int32("n",
			int32(len(docs))).Finish()}, nil
	},
	"$count": func(_ *pipeline, docs []bson.Raw, argument bson.Value) ([]bson.Raw, error) {
		name, isText := argument.Str()
		switch {
		case !isText || name == "":
			return nil, failure.Code(40156).Errorf("the count field must be a non-empty string")
		case strings.HasPrefix(name, "$"):
			return nil, failure.Code(40158).Errorf("the count field cannot be a $-prefixed path")
		case strings.Contains(name, "."):
			return nil, failure.Code(40160).Errorf("the count field cannot contain '.'")
		case len(docs) == 0:
			return nil, nil
		}
		return []bson.Raw{bson.NewBuilder(nil).Int32(name, int32(len(docs))).Finish()}, nil
	},
	"$collStats": func(p *pipeline, _ []bson.Raw, argument bson.Value) ([]bson.Raw, error) {
		if asked, _ := argument.Document(); asked.FirstKey() != "storageStats" || asked.Len() != 1 {
			return nil, failure.BadValue.Errorf("$collStats only has storageStats here")
		}
		options := p.store.lookLocked(p.namespace).options
		return []bson.Raw{bson.NewBuilder(nil).OpenDocument("storageStats").
			Bool("capped", field(options, "capped").Truthy()).Int64("maxSize",
			integer(options, "size")).
			Close().Finish()}, nil
	},
	"$documents": func(_ *pipeline, _ []bson.Raw, argument bson.Value) ([]bson.Raw, error) {
		list, _ := argument.Array()
		return slices.Collect(list.Documents()), nil
	},
	"$listSearchIndexes": func(*pipeline, []bson.Raw, bson.Value) ([]bson.Raw, error) {
		return nil, errSearchIndexes
	},
	// Sessions are not kept; what a server lists is never empty while a client asks.
	"$listLocalSessions": func(*pipeline, []bson.Raw, bson.Value) ([]bson.Raw, error) {
		id := bson.NewBuilder(nil).OpenDocument("_id").Int32("id", 1).Close().Finish()
		return []bson.Raw{id}, nil
	},
	"$out": func(p *pipeline, docs []bson.Raw, argument bson.Value) ([]bson.Raw, error) {
		name, _ := argument.Str()
		namespace := p.database + "." + name
		p.store.doLocked(entry{namespace: namespace, apply: func(s *store) {
			s.collections[namespace] = newCollection(slices.Clone(docs))
		}})
		return nil, nil
	},
	"$merge": func(p *pipeline, docs []bson.Raw, argument bson.Value) ([]bson.Raw, error) {
		into, _ := argument.Document()
		name, isName := field(into, "into").Str()
		matched, _ := field(into, "whenMatched").Str()
		known := 1
		if matched == "fail" {
			known = 2
		}
		if !isName || into.Len() != known {
			return nil, failure.BadValue.Errorf("$merge only goes into a collection here")
		}
		return nil, p.store.mergeLocked(p.database+"."+name, docs, matched == "fail",
			p.bypass)
	},
}

// countAll is how drivers count documents.
var countAll = bson.NewBuilder(nil).Int32("_id", 1).OpenDocument("n").Int32("$sum",
	1).Close().Finish()
