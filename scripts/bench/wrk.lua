-- Saturating load for wrk: POST the body in $BENCH_BODY, tenants t0 to t99 in turn, with their tokens where $BENCH_TOKENS names a file. Prints one JSON object at the end.
local path = "/v2/models/m/infer"
local requests = {}
local turn = 0

function init()
  local file = assert(io.open(os.getenv("BENCH_BODY"), "rb"))
  local body = file:read("*a")
  file:close()
  local tokens = os.getenv("BENCH_TOKENS") or ""
  local next_token = tokens ~= "" and assert(io.lines(tokens)) or nil
  for tenant = 0, 99 do
    local headers = { ["content-type"] = "application/json", ["x-tenant"] = "t" .. tenant }
    if next_token then headers["authorization"] = "Bearer " .. assert(next_token()) end
    requests[tenant] = wrk.format("POST", path, headers, body)
  end
end

function request()
  turn = (turn + 1) % 100
  return requests[turn]
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format('\nRESULT {"requests":%d,"elapsed_us":%d,"bad":%d,"p50":%d,"p99":%d}\n', summary.requests, summary.duration,
    e.status + e.connect + e.read + e.write + e.timeout, latency:percentile(50), latency:percentile(99)))
end
