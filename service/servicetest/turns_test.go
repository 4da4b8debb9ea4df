package servicetest_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/policy"
	"github.com/mooringdb/mooring/service/servicetest"
)

// TestNoCallWaitsInItsTurn makes a large call of every RPC in every protocol, with and without
// limits of a policy, while so much memory is left that it has to wait for more: at each place
// where it waits, the only turn of heavy work must be free, since those that hold the memory may
// need it. Then the call goes on to its end, so it takes no second turn in its turn either.
func TestNoCallWaitsInItsTurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one turn
	const budget = 64 << 20
	rules, err := policy.Parse([]byte(`@filter("{'t': 1}") permit (principal, action, resource);`))
	if err != nil {
		t.Fatal(err)
	}
	waits := map[string]int{}
	for name, enforcer := range map[string]*policy.Enforcer{
		"no policy": nil, "limits": policy.NewEnforcer(policy.Config{Policy: rules}),
	} {
		a := admission.New(admission.Config{Bytes: budget, Patience: time.Minute})
		g := servicetest.Start(t, fakemongo.NewServer(t, nil), servicetest.Config{
			Admission: a, Policy: enforcer,
		})
		g.Server.SetDocuments("d.c", servicetest.Docs(3, 300<<10)...)
		for _, of := range ways(t, g, a) {
			for _, rpc := range methods() {
				request := requestOf(t, rpc)
				enlarge(request.ProtoReflect())
				lefts := []int64{0, 700 << 10, 1500 << 10, 3 << 20}
				if of.name != "gRPC" && of.name != "in the process" {
					// they add their own waiting to that of the above
					lefts = []int64{0, 1500 << 10}
				}
				for _, left := range lefts {
					if waitsFreely(t, a, budget-left, func(ctx context.Context) {
						of.send(ctx, 1, rpc, proto.Clone(request)) // whatever its end is
					}) {
						waits[of.name]++
					}
					if t.Failed() {
						t.Fatalf("%s, %s, %s, %d bytes left", name, rpc.FullName(), of.name, left)
					}
				}
			}
		}
	}
	t.Logf("calls that have waited for memory: %v", waits)
	for _, of := range []struct {
		name string
		few  int
	}{
		{"gRPC", 150},
		{"in the process", 150},
		{"REST", 60},
		{"Connect", 80},
		{"gRPC-Web", 80},
		{"Data API", 20},
	} {
		if waits[of.name] < of.few {
			t.Errorf("%d calls of %s waited: the test shows little", waits[of.name], of.name)
		}
	}
}

// requestOf returns a request of an RPC that is sound.
func requestOf(t *testing.T, rpc protoreflect.MethodDescriptor) proto.Message {
	t.Helper()
	row, ok := rows("x")[rpc.FullName()]
	if !ok {
		row = rowOf(t, rpc)
	}
	return proto.Clone(row.request)
}

// waitsFreely makes a call while so many bytes are held. It reports whether the call has waited for
// memory, and fails the test if there was no turn meanwhile, or if the call does not end then.
func waitsFreely(
	t *testing.T, a *admission.Admission, held int64, makeCall func(context.Context),
) (waited bool) {
	t.Helper()
	var others admission.Account
	a.Open(&others, admission.Principal{Name: "others"})
	others.Force(held)
	defer others.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		makeCall(ctx)
	}()
	isOver := func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}
	servicetest.Eventually(t, "the call to wait or to end", func() bool {
		waited = a.Bytes().Waiting > 0
		return waited || isOver()
	})
	free := make(chan struct{})
	go func() {
		turn := a.Turn()
		turn.Take()
		turn.Leave()
		close(free)
	}()
	select {
	case <-free:
	case <-ctx.Done():
		t.Error("there is no turn while the call waits for memory")
	}
	others.Close()
	<-free
	select {
	case <-ended:
	case <-ctx.Done():
		t.Error("the call does not end")
	}
	return waited
}

// enlarge makes each document of a request large.
func enlarge(m protoreflect.Message) {
	const size = 256 << 10
	if d, ok := m.Interface().(*mooringv1.Document); ok {
		text, isObject := strings.CutSuffix(d.GetJson(), "}")
		if !isObject {
			return
		}
		if strings.Contains(text, ":") {
			text += ","
		}
		d.Encoding = &mooringv1.Document_Json{
			Json: text + `"pad": "` + strings.Repeat("x", size) + `", "t": 1}`,
		}
		return
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Kind() != protoreflect.MessageKind || fd.IsMap():
		case fd.IsList():
			for i := range v.List().Len() {
				enlarge(v.List().Get(i).Message())
			}
		default:
			enlarge(v.Message())
		}
		return true
	})
}
