package deployment_test

import (
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/bson/extjson"
	mooringv1 "github.com/mooringdb/mooring/gen/mooring/v1"
	"github.com/mooringdb/mooring/service/caller"
	"github.com/mooringdb/mooring/service/deployment"
	"github.com/mooringdb/mooring/service/policy"
)

const rules = `
@id("tenant") @filter("{'tenant': {'$claim': 'tenant'}}") @hidden("secret")
permit (principal in Group::"key:tenants", action in [Action::"read", Action::"write"], resource in Database::"shop")
when { principal.claims has tenant };
@id("all") permit (principal == Principal::"key:root", action, resource);`

// explain makes a call of ExplainPolicy with the rules and a file of keys; no rules: without a
// policy.
func explain(
	t *testing.T, rules string, req *mooringv1.ExplainPolicyRequest,
) (*mooringv1.ExplainPolicyResponse, error) {
	t.Helper()
	cfg := deployment.Config{Operators: []string{"key:root"}}
	if rules != "" {
		p, err := policy.Parse([]byte(rules))
		if err != nil {
			t.Fatal(err)
		}
		cfg.Policy = policy.NewEnforcer(policy.Config{Policy: p})
	}
	_, line, err := caller.NewKey("ann", caller.Identity{}.Expires)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := caller.ParseKeys([]byte(line + " groups=tenants claim.tenant=acme"))
	if err != nil {
		t.Fatal(err)
	}
	callers := caller.New(caller.Config{Keys: keys})
	defer callers.Close()
	cfg.Callers = callers
	conn := newConn()
	mooringv1.RegisterDeploymentServiceServer(conn, deployment.New(cfg))
	return mooringv1.NewDeploymentServiceClient(conn).ExplainPolicy(t.Context(), req)
}

func bsonOf(t *testing.T, text string) *mooringv1.Document {
	t.Helper()
	raw, err := extjson.Parse(nil, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return &mooringv1.Document{Encoding: &mooringv1.Document_Bson{Bson: raw}}
}

// textOf returns an answer as text, with its documents as Extended JSON.
func textOf(t *testing.T, resp *mooringv1.ExplainPolicyResponse) string {
	t.Helper()
	resp = proto.CloneOf(resp)
	for _, d := range []*mooringv1.Document{
		resp.Claims, resp.GetLimits().GetFilter(), resp.GetLimits().GetForced(),
	} {
		if d == nil {
			continue
		}
		text, err := extjson.Append(nil, bson.Raw(d.GetBson()), extjson.Relaxed)
		if err != nil {
			t.Fatal(err)
		}
		d.Encoding = &mooringv1.Document_Json{Json: string(text)}
	}
	text, err := protojson.Marshal(resp)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(" ", "", `\"`, "'").Replace(string(text))
}

func TestExplainPolicy(t *testing.T) {
	find := bsonOf(t,
		`{"database": "shop", "collection": "orders", "filter": {"total": {"$gt": {"$numberDecimal": "1.5"}}}, "limit": 5}`)
	for name, test := range map[string]struct {
		rules string
		req   *mooringv1.ExplainPolicyRequest
		want  []string
	}{
		"a key's groups and claims": {
			rules, &mooringv1.ExplainPolicyRequest{Principal: "key:ann", Call: "DocumentService/Find", Request: find},
			[]string{
				`"allowed":true,"rule":"tenant"`, `"principal":"key:ann","groups":["key:tenants"],"claims":{"json":"{'tenant':'acme'}"}`,
				`"limits":{"filter":{"json":"{'tenant':'acme'}"},"hidden":["secret"]}`,
				`{"field":"filter","before":"{'total':{'$gt':{'$numberDecimal':'1.5'}}}","after":"{'tenant':'acme','total':{'$gt':{'$numberDecimal':'1.5'}}}"}`,
				`{"field":"projection","after":"{'secret':0}"}`, `"noCommands":"tenant"`,
			},
		},
		"other claims": {
			rules, &mooringv1.ExplainPolicyRequest{Principal: "jwt:bob", Groups: []string{"key:tenants"}, Claims: bsonOf(t, `{"tenant": 7}`), Call: "DocumentService/Find", Request: find},
			[]string{`"limits":{"filter":{"json":"{'tenant':7}"}`},
		},
		"a refusal within limits": {
			rules, &mooringv1.ExplainPolicyRequest{
				Principal: "key:ann", Call: "DocumentService/FindOne",
				Request: bsonOf(t,
					`{"database": "shop", "collection": "orders", "filter": {"secret": 1}}`),
			},
			[]string{`"rule":"tenant"`, `"refusal":"thepolicydoesnotallowFindOneonshop.orders`, `"field":"filter"`, `"limits":{`},
		},
		"no rule": {
			rules, &mooringv1.ExplainPolicyRequest{Call: "DocumentService/Find", Request: find},
			[]string{`{"rule":"norule"`, `"refusal":`, `"nearPermits":[{"rule":"tenant","condition":"principalinGroup`},
		},
		"a rule that would permit it": {
			rules, &mooringv1.ExplainPolicyRequest{
				Principal: "key:ann", Call: "DocumentService/Find",
				Request: bsonOf(t, `{"database": "other", "collection": "orders"}`),
			},
			[]string{
				`{"rule":"norule"`, `{"rule":"tenant","condition":"resource`,
				`"permit":"permit(principal==Principal::'key:ann',action==Action::'Find',resource==Collection::'other.orders');"`,
			},
		},
		"an action without limits": {
			rules, &mooringv1.ExplainPolicyRequest{Principal: "key:root", Call: "DeploymentService/ListHandles"},
			[]string{`"allowed":true,"rule":"all"`, `"limits":{}`},
		},
		"parts": {
			rules, &mooringv1.ExplainPolicyRequest{
				Principal: "key:ann", Call: "DocumentService/BulkWrite",
				Request: bsonOf(t,
					`{"database": "shop", "collection": "orders", "models": [{"deleteOne": {"filter": {}}}]}`),
			},
			[]string{`"allowed":true,"rule":"tenant"`, `"field":"models"`, `'tenant':'acme'`},
		},
		"without a policy": {
			"", &mooringv1.ExplainPolicyRequest{Principal: "key:ann", Call: "DocumentService/Find", Request: find},
			[]string{`"allowed":true,"rule":"nopolicy"`},
		},
		"no operator": {
			"", &mooringv1.ExplainPolicyRequest{Principal: "key:ann", Call: "DeploymentService/GetTopology"},
			[]string{`{"rule":"auth.operators"`, `onlyoperatorsmaycallGetTopology`},
		},
		"an operator": {
			"", &mooringv1.ExplainPolicyRequest{Principal: "key:root", Call: "DeploymentService/GetTopology"},
			[]string{`"allowed":true`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := explain(t, test.rules, test.req)
			if err != nil {
				t.Fatal(err)
			}
			got := textOf(t, resp)
			for _, want := range test.want {
				if !strings.Contains(got, want) {
					t.Errorf("ExplainPolicy = %s, want %s in it", got, want)
				}
			}
		})
	}
}

func TestExplainPolicyRefuses(t *testing.T) {
	for field, req := range map[string]*mooringv1.ExplainPolicyRequest{
		"call":    {},
		"request": {Call: "DocumentService/Find", Request: bsonOf(t, `{"filtre": {}}`)},
		"claims":  {Call: "DocumentService/Find", Claims: &mooringv1.Document{}},
	} {
		_, err := explain(t, rules, req)
		if got := fieldOf(err); got != field {
			t.Errorf("ExplainPolicy(%v) = %v, of %q, want an error of %s", req, err, got, field)
		}
	}
	if _, err := explain(t, rules,
		&mooringv1.ExplainPolicyRequest{Call: "DocumentService/Nope"}); err == nil {
		t.Error("a call that does not exist is explained")
	}
}

// fieldOf returns the field that an error is about.
func fieldOf(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			return bad.GetFieldViolations()[0].GetField()
		}
	}
	return ""
}
