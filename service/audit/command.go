package audit

import (
	"strings"

	"github.com/mooringdb/mooring/core/bson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
)

// names says what the value of a command's first key is.
type names uint8

const (
	nothing names = iota // or something else, which is not logged
	collection
	fullName // with the database
	inner    // a command
)

// commands has, in lower case, the commands whose first value names something.
var commands = func() map[string]names {
	all := map[string]names{"explain": inner}
	for what, list := range map[names]string{
		collection: `aggregate analyze cleanupstructuredencryptiondata clonecollectionascapped
			collmod collstats compact compactstructuredencryptiondata converttocapped count create
			createindexes createsearchindexes delete deleteindexes distinct drop dropindexes
			dropsearchindex find findandmodify insert listindexes listsearchindexes mapreduce
			plancacheclear plancacheclearfilters plancachelistfilters plancachesetfilter reindex
			setindexcommitquorum update updatesearchindex validate`,
		fullName: `abortreshardcollection analyzeshardkey checkshardingindex
			cleanupreshardcollection clearjumboflag commitreshardcollection
			configurecollectionbalancing configurequeryanalyzer datasize enablesharding mergechunks
			movechunk movecollection moveprimary refinecollectionshardkey renamecollection
			reshardcollection shardcollection split splitchunk splitvector unshardcollection
			untrackunshardedcollection`,
	} {
		for name := range strings.FieldsSeq(list) {
			all[name] = what
		}
	}
	return all
}()

// command sets the namespace that a command names, and adds what else it reaches.
func (t *targets) command(database string, d *mooringv1.Document) {
	raw := bson.Raw(d.GetBson())
	if raw == nil {
		raw = parse(d.GetJson())
	}
	if raw == nil {
		return
	}
	t.read(database, raw)
	if raw, ok := mayWrite(d); ok && raw != nil {
		t.stages(database, raw, 0)
	}
}

// read reads a command, and what it explains.
func (t *targets) read(database string, cmd bson.Raw) {
	for range 2 {
		name := cmd.FirstKey()
		first, _ := cmd.Lookup(name)
		text, isText := first.Str()
		switch what := commands[strings.ToLower(name)]; {
		case what == inner:
			cmd, _ = first.Document()
			continue
		case what == collection && isText:
			t.namespace = database + "." + text
		case what == fullName && isText:
			t.namespace = text
		}
		t.beside(database, strings.ToLower(name), cmd)
		return
	}
}

// beside adds the namespaces that a command has beside the first.
func (t *targets) beside(database, name string, cmd bson.Raw) {
	switch name {
	case "renamecollection":
		if to := textAt(cmd, "to"); to != "" {
			t.add(to, "to")
		}
	case "clonecollectionascapped":
		if to := textAt(cmd, "toCollection"); to != "" {
			t.add(database+"."+to, "to")
		}
	case "mapreduce":
		for key, out := range cmd.All() {
			if key == "out" && !isInline(out) {
				t.add(outputOf(database, out), "out")
			}
		}
	case "bulkwrite":
		t.operations(cmd)
	}
}

// operations adds the operations of a bulkWrite command, whose first value is a place in nsInfo.
func (t *targets) operations(cmd bson.Raw) {
	var at []string
	infos, _ := cmd.Lookup("nsInfo")
	list, _ := infos.Array()
	for info := range list.Documents() {
		at = append(at, textAt(info, "ns"))
	}
	ops, _ := cmd.Lookup("ops")
	list, _ = ops.Array()
	for op := range list.Documents() {
		kind := op.FirstKey()
		value, _ := op.Lookup(kind)
		place, ok := value.AsInt64()
		if kind != "insert" && kind != "update" && kind != "delete" {
			kind = unknown
		}
		if !ok || place < 0 || place >= int64(len(at)) {
			t.add(unknown, kind)
			continue
		}
		t.add(at[place], kind)
	}
}
