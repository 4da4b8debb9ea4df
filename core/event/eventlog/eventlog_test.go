package eventlog_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/description"
	"github.com/mooringdb/mooring/core/event"
	"github.com/mooringdb/mooring/core/event/eventlog"
	"github.com/mooringdb/mooring/core/mongoerr"
)

var (
	id    = bson.ObjectID{0x2a}
	hexID = "2a0000000000000000000000"
	beat  = event.Heartbeat{
		TopologyID: id, Address: "a:27017", ConnectionID: 3, ServerConnectionID: 9, Awaited: true,
	}
	find  = event.Selection{TopologyID: id, Operation: "find", OperationID: 7, Selector: "writes"}
	hello = bson.NewBuilder(nil).String("msg", "isdbgrid").Double("ok", 1).Finish()
)

// render returns a message on two lines: its fields, and its sentence.
func render(m eventlog.Message) string {
	fields := ""
	for _, f := range m.Fields {
		fields += fmt.Sprintf(" %s=%v", f.Key, f.Value)
	}
	return fmt.Sprintf("%s %s %q%s\n%s", m.Component, m.Level, m.Message, fields, m.Text())
}

func TestMessages(t *testing.T) {
	before, after := description.Topology{}, description.Topology{Kind: description.KindSharded}
	of := " in topology with ID " + hexID
	ping := event.Command{
		Name: "ping", Database: "d", RequestID: 4, OperationID: 5, Address: "a:27017",
		ConnectionID:       3,
		ServerConnectionID: 9, ServiceID: id,
	}
	using := " using a connection with driver-generated ID 3 and server-generated ID 9 to " +
		"a:27017 with service ID " + hexID +
		". The requestID is 4 and the operation ID is 5. "
	on := " on connection with driver-generated ID 3 and server-generated ID 9" + of +
		". Awaited: true"
	for name, test := range map[string]struct {
		emit func(*event.Sink)
		want string
	}{
		"TopologyOpening": {
			func(s *event.Sink) { s.TopologyOpening(event.TopologyOpening{TopologyID: id}) },
			`topology debug "Starting topology monitoring" topologyId=` + hexID + "\nStarting monitoring for topology with ID " + hexID,
		},
		"TopologyClosed": {
			func(s *event.Sink) { s.TopologyClosed(event.TopologyClosed{TopologyID: id}) },
			`topology debug "Stopped topology monitoring" topologyId=` + hexID + "\nStopped monitoring for topology with ID " + hexID,
		},
		"ServerOpening": {
			func(s *event.Sink) { s.ServerOpening(event.ServerOpening{TopologyID: id, Address: "a:27017"}) },
			`topology debug "Starting server monitoring" topologyId=` + hexID + " serverHost=a serverPort=27017\nStarting monitoring for server a:27017" + of,
		},
		"ServerClosed": {
			func(s *event.Sink) { s.ServerClosed(event.ServerClosed{TopologyID: id, Address: "/tmp/s.sock"}) },
			`topology debug "Stopped server monitoring" topologyId=` + hexID + " serverHost=/tmp/s.sock\nStopped monitoring for server /tmp/s.sock" + of,
		},
		"TopologyDescriptionChanged": {
			func(s *event.Sink) {
				s.TopologyDescriptionChanged(event.TopologyDescriptionChanged{
					TopologyID: id, Previous: before, New: after,
				})
			},
			`topology debug "Topology description changed" topologyId=` + hexID +
				" previousDescription=Unknown [] newDescription=Sharded []" +
				"\nDescription changed for topology with ID " + hexID +
				". Previous description: Unknown []. New description: Sharded []",
		},
		"ServerHeartbeatStarted": {
			func(s *event.Sink) {
				first := beat
				first.ServerConnectionID, first.Awaited = 0, false
				s.ServerHeartbeatStarted(event.ServerHeartbeatStarted{Heartbeat: first})
			},
			`topology debug "Server heartbeat started" topologyId=` + hexID +
				" serverHost=a serverPort=27017 driverConnectionId=3 awaited=false" +
				"\nHeartbeat started for a:27017 on connection with driver-generated ID 3" + of +
				". Awaited: false",
		},
		"ServerHeartbeatSucceeded": {
			func(s *event.Sink) {
				s.ServerHeartbeatSucceeded(event.ServerHeartbeatSucceeded{
					Heartbeat: beat, Duration: 1500 * time.Millisecond, Reply: hello,
				})
			},
			`topology debug "Server heartbeat succeeded" topologyId=` + hexID +
				" serverHost=a serverPort=27017 driverConnectionId=3 serverConnectionId=9 " +
				"awaited=true durationMS=1500 " +
				`reply={"msg":"isdbgrid","ok":1.0}` +
				"\nHeartbeat succeeded in 1500 ms for a:27017" + on +
				`. Reply: {"msg":"isdbgrid","ok":1.0}`,
		},
		"ServerHeartbeatFailed": {
			func(s *event.Sink) {
				s.ServerHeartbeatFailed(event.ServerHeartbeatFailed{
					Heartbeat: beat, Duration: time.Second, Err: errors.New("reset"),
				})
			},
			`topology debug "Server heartbeat failed" topologyId=` + hexID +
				" serverHost=a serverPort=27017 driverConnectionId=3 serverConnectionId=9 " +
				"awaited=true durationMS=1000 failure=reset" +
				"\nHeartbeat failed in 1000 ms for a:27017" + on + ". Failure: reset",
		},
		"CommandStarted": {
			func(s *event.Sink) { s.CommandStarted(event.CommandStarted{Command: ping, Body: hello}) },
			`command debug "Command started" commandName=ping databaseName=d requestId=4 operationId=5 driverConnectionId=3 serverHost=a serverPort=27017 ` +
				"serverConnectionId=9 serviceId=" + hexID + ` command={"msg":"isdbgrid","ok":1.0}` +
				"\nCommand \"ping\" started on database \"d\"" + using +
				`Command: {"msg":"isdbgrid","ok":1.0}`,
		},
		"CommandSucceeded": {
			func(s *event.Sink) {
				s.CommandSucceeded(event.CommandSucceeded{
					Command: ping, Duration: time.Second, Reply: hello,
				})
			},
			`command debug "Command succeeded" commandName=ping databaseName=d requestId=4 operationId=5 driverConnectionId=3 serverHost=a serverPort=27017 ` +
				"serverConnectionId=9 serviceId=" + hexID +
				` durationMS=1000 reply={"msg":"isdbgrid","ok":1.0}` +
				"\nCommand \"ping\" succeeded on database \"d\" in 1000 ms" + using +
				`Command reply: {"msg":"isdbgrid","ok":1.0}`,
		},
		"CommandFailed": {
			func(s *event.Sink) {
				plain := ping
				plain.ServerConnectionID, plain.ServiceID = 0, bson.ObjectID{}
				s.CommandFailed(event.CommandFailed{
					Command: plain, Duration: time.Second, Err: errors.New("reset"),
				})
			},
			`command debug "Command failed" commandName=ping databaseName=d requestId=4 operationId=5 driverConnectionId=3 serverHost=a serverPort=27017 durationMS=1000 failure=reset` +
				"\nCommand \"ping\" failed on database \"d\" in 1000 ms using a connection with " +
				"driver-generated ID 3 to a:27017. The requestID is 4 and the operation ID is 5. " +
				"Error: reset",
		},
		"ServerSelectionStarted": {
			func(s *event.Sink) { s.ServerSelectionStarted(event.ServerSelectionStarted{Selection: find}) },
			`serverSelection debug "Server selection started" selector=writes operation=find operationId=7 topologyDescription=Unknown []` +
				"\nServer selection started for operation find with ID 7. Selector: writes, " +
				"topology description: Unknown []",
		},
		"ServerSelectionWaiting": {
			func(s *event.Sink) {
				s.ServerSelectionWaiting(event.ServerSelectionWaiting{
					Selection: find, Remaining: 30 * time.Second,
				})
			},
			`serverSelection info "Waiting for suitable server to become available" selector=writes operation=find operationId=7 topologyDescription=Unknown [] remainingTimeMS=30000` +
				"\nWaiting for server to become available for operation find with ID 7. " +
				"Remaining time: 30000 ms. Selector: writes, topology description: Unknown [].",
		},
		"ServerSelectionSucceeded": {
			func(s *event.Sink) {
				s.ServerSelectionSucceeded(event.ServerSelectionSucceeded{
					Selection: event.Selection{Operation: "ping", Selector: "any"},
					Server:    "a:27017",
				})
			},
			`serverSelection debug "Server selection succeeded" selector=any operation=ping topologyDescription=Unknown [] serverHost=a serverPort=27017` +
				"\nServer selection succeeded for operation ping. Selected server: a:27017. " +
				"Selector: any, topology description: Unknown []",
		},
		"ServerSelectionFailed": {
			func(s *event.Sink) {
				s.ServerSelectionFailed(event.ServerSelectionFailed{
					Selection: find,
					Err: &mongoerr.SelectionError{
						Selector: "writes", Topology: "Unknown []", Timeout: time.Second,
						Reason: "No servers are suitable for writes",
					},
				})
			},
			`serverSelection debug "Server selection failed" selector=writes operation=find operationId=7 topologyDescription=Unknown [] failure=server selection timed out after 1s: No servers are suitable for writes` +
				"\nServer selection failed for operation find with ID 7. Failure: server " +
				"selection timed out after 1s: No servers are suitable for writes. Selector: " +
				"writes, topology description: Unknown []",
		},
		"PoolCreated": {
			func(s *event.Sink) {
				s.PoolCreated(event.PoolCreated{Address: "a:27017", Options: event.PoolOptions{
					MaxSize: 5, MinSize: 1, MaxConnecting: 3, MaxIdleTime: time.Second,
					WaitQueueTimeout: 2 * time.Second,
				}})
			},
			`connection debug "Connection pool created" serverHost=a serverPort=27017 maxIdleTimeMS=1000 minPoolSize=1 maxPoolSize=5 maxConnecting=3 waitQueueTimeoutMS=2000` +
				"\nConnection pool created for a:27017 using options maxIdleTimeMS=1000, " +
				"minPoolSize=1, maxPoolSize=5, maxConnecting=3, waitQueueTimeoutMS=2000",
		},
		"PoolCreated without a maximum": {
			func(s *event.Sink) {
				s.PoolCreated(event.PoolCreated{
					Address: "a:27017", Options: event.PoolOptions{Unlimited: true},
				})
			},
			`connection debug "Connection pool created" serverHost=a serverPort=27017 maxPoolSize=0` +
				"\nConnection pool created for a:27017 using options maxPoolSize=0",
		},
		"PoolCreated, all as by default": {
			func(s *event.Sink) { s.PoolCreated(event.PoolCreated{Address: "a:27017"}) },
			`connection debug "Connection pool created" serverHost=a serverPort=27017` + "\nConnection pool created for a:27017",
		},
		"PoolReady": {
			func(s *event.Sink) { s.PoolReady(event.PoolReady{Address: "a:27017"}) },
			`connection debug "Connection pool ready" serverHost=a serverPort=27017` + "\nConnection pool ready for a:27017",
		},
		"PoolCleared": {
			func(s *event.Sink) { s.PoolCleared(event.PoolCleared{Address: "a:27017"}) },
			`connection debug "Connection pool cleared" serverHost=a serverPort=27017` + "\nConnection pool for a:27017 cleared",
		},
		"PoolCleared for a service": {
			func(s *event.Sink) { s.PoolCleared(event.PoolCleared{Address: "a:27017", ServiceID: id}) },
			`connection debug "Connection pool cleared" serverHost=a serverPort=27017 serviceId=` +
				hexID +
				"\nConnection pool for a:27017 cleared for serviceId " + hexID,
		},
		"PoolClosed": {
			func(s *event.Sink) { s.PoolClosed(event.PoolClosed{Address: "/tmp/m.sock"}) },
			`connection debug "Connection pool closed" serverHost=/tmp/m.sock` + "\nConnection pool closed for /tmp/m.sock",
		},
		"ConnectionCreated": {
			func(s *event.Sink) {
				s.ConnectionCreated(event.ConnectionCreated{Address: "a:27017", ConnectionID: 4})
			},
			`connection debug "Connection created" serverHost=a serverPort=27017 driverConnectionId=4` +
				"\nConnection created: address=a:27017, driver-generated ID=4",
		},
		"ConnectionReady": {
			func(s *event.Sink) {
				s.ConnectionReady(event.ConnectionReady{
					Address: "a:27017", ConnectionID: 4, Duration: 7 * time.Millisecond,
				})
			},
			`connection debug "Connection ready" serverHost=a serverPort=27017 driverConnectionId=4 durationMS=7` +
				"\nConnection ready: address=a:27017, driver-generated ID=4, established in=7 ms",
		},
		"ConnectionClosed, stale": {
			func(s *event.Sink) {
				s.ConnectionClosed(event.ConnectionClosed{
					Address: "a:27017", ConnectionID: 4, Reason: event.ClosedStale,
				})
			},
			`connection debug "Connection closed" serverHost=a serverPort=27017 driverConnectionId=4 reason=Connection became stale because the pool was cleared` +
				"\nConnection closed: address=a:27017, driver-generated ID=4. Reason: Connection " +
				"became stale because the pool was cleared.",
		},
		"ConnectionClosed, idle": {
			func(s *event.Sink) {
				s.ConnectionClosed(event.ConnectionClosed{
					Address: "a:27017", ConnectionID: 4, Reason: event.ClosedIdle,
				})
			},
			`connection debug "Connection closed" serverHost=a serverPort=27017 driverConnectionId=4 reason=Connection has been available but unused for longer than the configured max idle time` +
				"\nConnection closed: address=a:27017, driver-generated ID=4. Reason: Connection " +
				"has been available but unused for longer than the configured max idle time.",
		},
		"ConnectionClosed, error": {
			func(s *event.Sink) {
				s.ConnectionClosed(event.ConnectionClosed{
					Address: "a:27017", ConnectionID: 4, Reason: event.ClosedError,
					Err: errors.New("reset"),
				})
			},
			`connection debug "Connection closed" serverHost=a serverPort=27017 driverConnectionId=4 reason=An error occurred while using the connection error=reset` +
				"\nConnection closed: address=a:27017, driver-generated ID=4. Reason: An error " +
				"occurred while using the connection. Error: reset.",
		},
		"ConnectionClosed, pool closed": {
			func(s *event.Sink) {
				s.ConnectionClosed(event.ConnectionClosed{
					Address: "a:27017", ConnectionID: 4, Reason: event.ClosedPoolClosed,
				})
			},
			`connection debug "Connection closed" serverHost=a serverPort=27017 driverConnectionId=4 reason=Connection pool was closed` +
				"\nConnection closed: address=a:27017, driver-generated ID=4. Reason: Connection " +
				"pool was closed.",
		},
		"CheckOutStarted": {
			func(s *event.Sink) { s.ConnectionCheckOutStarted(event.ConnectionCheckOutStarted{Address: "a:27017"}) },
			`connection debug "Connection checkout started" serverHost=a serverPort=27017` + "\nCheckout started for connection to a:27017",
		},
		"CheckOutFailed, timeout": {
			func(s *event.Sink) {
				s.ConnectionCheckOutFailed(event.ConnectionCheckOutFailed{
					Address: "a:27017", Reason: event.CheckOutTimeout, Duration: time.Second,
					Err: errors.New("timed out"),
				})
			},
			`connection debug "Connection checkout failed" serverHost=a serverPort=27017 reason=Wait queue timeout elapsed without a connection becoming available durationMS=1000` +
				"\nCheckout failed for connection to a:27017. Reason: Wait queue timeout elapsed " +
				"without a connection becoming available. Duration: 1000 ms",
		},
		"CheckOutFailed, error": {
			func(s *event.Sink) {
				s.ConnectionCheckOutFailed(event.ConnectionCheckOutFailed{
					Address: "a:27017", Reason: event.CheckOutConnectionError,
					Duration: time.Second, Err: errors.New("refused"),
				})
			},
			`connection debug "Connection checkout failed" serverHost=a serverPort=27017 reason=An error occurred while trying to establish a new connection durationMS=1000 error=refused` +
				"\nCheckout failed for connection to a:27017. Reason: An error occurred while " +
				"trying to establish a new connection. Error: refused. Duration: 1000 ms",
		},
		"CheckOutFailed, closed": {
			func(s *event.Sink) {
				s.ConnectionCheckOutFailed(event.ConnectionCheckOutFailed{
					Address: "a:27017", Reason: event.CheckOutPoolClosed, Err: errors.New("closed"),
				})
			},
			`connection debug "Connection checkout failed" serverHost=a serverPort=27017 reason=Connection pool was closed durationMS=0` +
				"\nCheckout failed for connection to a:27017. Reason: Connection pool was " +
				"closed. Duration: 0 ms",
		},
		"CheckedOut": {
			func(s *event.Sink) {
				s.ConnectionCheckedOut(event.ConnectionCheckedOut{
					Address: "a:27017", ConnectionID: 4, Duration: time.Millisecond,
				})
			},
			`connection debug "Connection checked out" serverHost=a serverPort=27017 driverConnectionId=4 durationMS=1` +
				"\nConnection checked out: address=a:27017, driver-generated ID=4, duration=1 ms",
		},
		"CheckedIn": {
			func(s *event.Sink) {
				s.ConnectionCheckedIn(event.ConnectionCheckedIn{
					Address:      "a:27017",
					ConnectionID: 4,
				})
			},
			`connection debug "Connection checked in" serverHost=a serverPort=27017 driverConnectionId=4` +
				"\nConnection checked in: address=a:27017, driver-generated ID=4",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			test.emit(eventlog.Sink(eventlog.Config{Write: func(m eventlog.Message) {
				got = append(got, render(m))
			}}))
			if !slices.Equal(got, []string{test.want}) {
				t.Errorf("messages:\n%s\nwant:\n%s", strings.Join(got, "\n"), test.want)
			}
		})
	}
}

func TestComponents(t *testing.T) {
	s := reflect.ValueOf(eventlog.Sink(eventlog.Config{
		Components: []eventlog.Component{eventlog.ServerSelection},
	})).Elem()
	for i := range s.NumField() {
		name := s.Type().Field(i).Name
		if heard := !s.Field(i).IsNil(); heard != strings.HasPrefix(name, "ServerSelection") {
			t.Errorf("%s is heard: %v", name, heard)
		}
	}
}

func TestDocumentsAreCutOff(t *testing.T) {
	doc := bson.NewBuilder(nil).String("a", strings.Repeat("é", 600)).Finish()
	for limit, want := range map[int]int{
		0: 1000 + 3, 10: 10 + 3, 9: 8 + 3, -1: 1200 + len(`{"a":""}`),
	} {
		var reply string
		s := eventlog.Sink(eventlog.Config{MaxDocumentLength: limit, Write: func(
			m eventlog.Message,
		) {
			i := slices.IndexFunc(m.Fields, func(a eventlog.Field) bool { return a.Key == "reply" })
			reply = m.Fields[i].Value.(string)
		}})
		s.ServerHeartbeatSucceeded(event.ServerHeartbeatSucceeded{Heartbeat: beat, Reply: doc})
		if len(reply) != want {
			t.Errorf("limit %d: %d bytes, want %d", limit, len(reply), want)
		}
	}
	var failed string
	s := eventlog.Sink(eventlog.Config{Write: func(m eventlog.Message) { failed = m.Text() }})
	s.ServerHeartbeatSucceeded(event.ServerHeartbeatSucceeded{
		Heartbeat: beat, Reply: bson.Raw{5, 0, 0},
	})
	if !strings.Contains(failed, "malformed") {
		t.Errorf("a malformed reply is %q", failed)
	}
}
