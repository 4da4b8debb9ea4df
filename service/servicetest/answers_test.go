package servicetest_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/servicetest"
)

// TestAnswersOfWrites has memory for a server's reply, and too little for the answer that is made
// of it, in several degrees: no protocol refuses the answer of a write, which must not be made
// again.
func TestAnswersOfWrites(t *testing.T) {
	const budget = 16 << 20
	large := bson.NewBuilder(nil).String("a", strings.Repeat("\x01", 1<<20)).Finish() // JSON: 6 MiB
	server := fakemongo.NewServer(t, fakemongo.Handlers{
		"findAndModify": func(*fakemongo.Command) fakemongo.Reply {
			return fakemongo.OK(func(b *bson.Builder) { b.Document("value", large) })
		},
	})
	a := admission.New(admission.Config{Bytes: budget, Patience: time.Millisecond})
	g := servicetest.Start(t, server, servicetest.Config{Admission: a})
	rpcs := methods()
	rpc := rpcs[slices.IndexFunc(rpcs, func(m protoreflect.MethodDescriptor) bool {
		return m.Name() == "FindOneAndDelete"
	})]
	request := requestOf(t, rpc)
	for n, of := range ways(t, g, a) {
		if of.name == "Data API" {
			continue // it has no such action, and its answers are not charged
		}
		for free := int64(1 << 20); free <= budget; free += 1 << 20 {
			var others admission.Account
			a.Open(&others, admission.Principal{Name: "others"})
			others.Force(budget - free)
			if got, ok := of.send(t.Context(), n, rpc, request); !ok || got.refused {
				t.Errorf("%s, with %d bytes free: %+v", of.name, free, got)
			}
			others.Close()
		}
	}
}
