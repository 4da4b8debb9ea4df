package rest

import (
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/csv"
	"github.com/mooringdb/mooring/service/media"
)

// exportParams lists the parameters of a stream of documents that are for rows of CSV.
var exportParams = []string{columnsParam, delimiterParam}

// hasProjection describes the requests with a projection.
type hasProjection interface {
	GetProjection() *mooringv1.Document
}

// openExport makes the encoder of a stream whose form is CSV. Its columns are those of the query,
// or else of the projection.
func (s *stream) openExport(request proto.Message) error {
	if s.c.format.Type != media.CSV {
		for _, name := range exportParams {
			if s.c.query.Has(name) && s.c.route.hasParam(name) {
				return refuseField(name, "is for rows: Accept must be "+media.CSV.String())
			}
		}
		return nil
	}
	comma, err := delimiterOf(s.c.query)
	if err != nil {
		return err
	}
	columns, err := columnsOf(s.c.query)
	if err != nil {
		return err
	}
	if columns == nil {
		find, _ := request.(hasProjection)
		if find != nil {
			columns = projected(find.GetProjection().GetBson())
		}
		if columns == nil {
			return refuseField(columnsParam, "is required, since no projection lists the fields "+
				"of a row: columns=_id,total,address.city")
		}
	}
	s.export, err = csv.NewEncoder(columns, csv.EncoderOptions{
		Comma: comma, Mode: s.c.format.Mode, Guard: s.c.format.Guard,
	})
	if err != nil {
		return refuseField(columnsParam, err.Error())
	}
	return nil
}

// names appends the row of names, if it is missing.
func (s *stream) names(dst []byte) []byte {
	if s.export == nil || s.named {
		return dst
	}
	s.named = true
	return s.export.AppendHeader(dst)
}

const idField = "_id"

// projected returns a column for each field that a projection lists; nil if it lists none. _id is
// the first one, unless the projection names it elsewhere or leaves it out.
func projected(projection bson.Raw) []csv.Column {
	id, hasID := projection.Lookup(idField)
	columns := listed(nil, "", projection)
	switch {
	case hasID && (id.Truthy() || !isSwitch(id)): // it is listed
	case len(columns) > 0 && !hasID:
		columns = append([]csv.Column{{Path: idField}}, columns...)
	}
	return columns
}

// listed appends the fields that a projection lists within a path, which ends with a dot.
func listed(columns []csv.Column, path string, projection bson.Raw) []csv.Column {
	for key, v := range projection.All() {
		inner, isDocument := v.Document()
		switch {
		case isSwitch(v) && !v.Truthy():
		case isDocument && !inner.IsEmpty() && !strings.HasPrefix(inner.FirstKey(), "$"):
			columns = listed(columns, path+key+".", inner)
		default:
			columns = append(columns, csv.Column{Path: path + strings.TrimSuffix(key, ".$")})
		}
	}
	return columns
}

// isSwitch reports whether a value says that a field is there or left out.
func isSwitch(v bson.Value) bool {
	_, isBool := v.Bool()
	_, isNumber := v.AsDouble()
	return isBool || isNumber
}
