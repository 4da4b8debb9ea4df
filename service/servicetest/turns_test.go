package servicetest_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/service/admission"
	"github.com/mooringdb/mooring/service/policy"
	"github.com/mooringdb/mooring/service/servicetest"
)

// TestNoCallWaitsInItsTurn makes a large call of every RPC, over gRPC and in the process, with and
// without limits of a policy, while so much memory is left that it has to wait for more: at each
// place where it waits, the only turn of heavy work must be free, since those that hold the memory
// may need it. Then the call goes on to its end, so it takes no second turn in its turn either.
func TestNoCallWaitsInItsTurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one turn
	const budget = 64 << 20
	rules, err := policy.Parse([]byte(`@filter("{'t': 1}") permit (principal, action, resource);`))
	if err != nil {
		t.Fatal(err)
	}
	waits := 0
	for name, enforcer := range map[string]*policy.Enforcer{
		"no policy": nil, "limits": policy.NewEnforcer(policy.Config{Policy: rules}),
	} {
		a := admission.New(admission.Config{Bytes: budget, Patience: time.Minute})
		g := servicetest.Start(t, fakemongo.NewServer(t, nil), servicetest.Config{
			Admission: a, Policy: enforcer,
		})
		g.Server.SetDocuments("d.c", servicetest.Docs(3, 300<<10)...)
		table := rows("x")
		for _, rpc := range methods() {
			row, ok := table[rpc.FullName()]
			if !ok {
				row = rowOf(t, rpc)
			}
			request := proto.Clone(row.request)
			enlarge(request.ProtoReflect())
			for way, conn := range map[string]grpc.ClientConnInterface{
				"gRPC": g.Conn, "in the process": g.Local,
			} {
				for _, left := range []int64{0, 700 << 10, 1500 << 10, 3 << 20} {
					if waitsFreely(t, a, budget-left, func(ctx context.Context) {
						_ = call(ctx, conn, rpc, proto.Clone(request)) // whatever its end is
					}) {
						waits++
					}
					if t.Failed() {
						t.Fatalf("%s, %s, %s, %d bytes left", name, rpc.FullName(), way, left)
					}
				}
			}
		}
	}
	t.Logf("%d calls have waited for memory", waits)
	if waits < 150 {
		t.Error("the test shows little")
	}
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
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
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
