-- The store's side of one shared limit: `holdfast_quota::lease::Bank`, word by word, over one hash.
--
-- KEYS: 1 the limit, 2 since when the limits beside it can have been there (the same slot).
-- ARGV: 1 tokens, 2 span in us, 3 burst, 4 gateway, 5 order, 6 want, 7 whole, 8 held, 9 offered, 10 live gateways, 11 returned,
--       12 us alone or -1, 13 admitted alone, 14 chunk and 15 fraction in ten thousandths, 16 turns from, 17 lease us, 18 settle us,
--       19 most gateways, 20 the time in us, for tests, or ''.
-- Answers: order, tokens, chunk, gateways, ask after us, alone for us, us until there is a token, tokens left. Nothing for an order that is not newer than the last.
-- Levels are in parts of a token: as many as the span has microseconds, so that every number is whole.
local arg = {}
for i = 1, 19 do arg[i] = tonumber(ARGV[i]) end
local tokens, per, burst, me = arg[1], arg[2], arg[3], 'g:' .. ARGV[4]
local order, want, whole, held, offered = arg[5], arg[6], arg[7] == 1, arg[8], arg[9]
local live, returned, alone, alone_admitted = arg[10], arg[11], arg[12], arg[13]
local lease, settle = arg[17], arg[18]
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local function int(n) return string.format('%.0f', n) end

local now = tonumber(ARGV[20])
if not now then
    local time = redis.call('TIME')
    now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- What is kept.
local all = redis.call('HGETALL', KEYS[1])
local kept, gates = {}, {}
for i = 1, #all, 2 do
    if string.sub(all[i], 1, 2) == 'g:' then
        local l = {}
        for number in string.gmatch(all[i + 1], '[^ ]+') do l[#l + 1] = tonumber(number) end
        -- order, out, asked, offered in thousandths, us, spent (of a limit too small to share; earlier releases wrote none)
        l[6] = l[6] or 0
        gates[all[i]] = l
    else
        kept[all[i]] = tonumber(all[i + 1])
    end
end
local level, at, next_turn, last_ask, opens
if kept.l then
    level, at, next_turn, last_ask, opens = kept.l, kept.t, kept.n, kept.a, kept.o
else
    -- Lost, or new: as if it had been empty when the store was.
    local born = tonumber(redis.call('GET', KEYS[2]) or '')
    if not born then
        born = now
        redis.call('SET', KEYS[2], int(now))
    end
    level, at, next_turn, last_ask, opens = 0, min(born, now), now, 0, min(born, now)
    kept.k, kept.p, kept.b = tokens, per, burst
end

-- The bucket.
local function refill(time, speed, most)
    if time < at then
        if (at - time) * speed > most then at = time end
        return
    end
    level = min(level + (time - at) * speed, most)
    at = time
end
local changed = kept.k ~= tokens or kept.p ~= per or kept.b ~= burst
if changed then
    refill(max(now, opens), kept.k, kept.b * kept.p)
    -- Rounded up, so that a change back and forth makes no tokens.
    local used = kept.b * kept.p - level
    if kept.p ~= per then used = ceil(used / kept.p * per) end
    level = max(burst * per - used, 0)
end
local function open_time() return max(now, opens) end
local function fill() refill(open_time(), tokens, burst * per) end
local function available()
    fill()
    return max(floor(level / per), 0)
end

-- Sizes.
local per_second = floor(tokens * 1000000 / per)
local ceiling = floor(per_second * arg[15] / 10000)
local nominal = max(floor((per_second * arg[14] + 5000) / 10000), 1)
local function chunk_for(gateways) return max(min(nominal, floor(ceiling / max(gateways, 1))), 1) end
local function shareable(gateways) return gateways <= 1 or ceiling >= gateways end
local function bound(gateways)
    if shareable(gateways) then return max(gateways, 1) * chunk_for(gateways) end
    return chunk_for(1)
end
local function count()
    local n = 0
    for _ in pairs(gates) do n = n + 1 end
    return n
end
local function small() return not shareable(max(count(), 1, live)) end
local function gateways()
    if small() then return max(count(), 1) end
    return max(count(), 1, live)
end
local function rate(l) return floor(l[4] * 1000000 / max(l[5], 1)) end
local function chunk_of(demand)
    local even = chunk_for(gateways())
    if even == nominal then return nominal end
    local sum = 0
    for _, l in pairs(gates) do sum = sum + rate(l) end
    local mine = even
    if sum > 0 and demand > 0 then mine = floor(bound(gateways()) * demand / sum) end
    return min(max(mine, 1), nominal)
end

-- Leases that have ended.
local gone = {}
for id, l in pairs(gates) do
    if now - l[3] >= lease then
        gates[id] = nil
        gone[#gone + 1] = id
    end
end
local known = gates[me]

local function keep()
    local last = gates[me]
    redis.call('HSET', KEYS[1], 'k', ARGV[1], 'p', ARGV[2], 'b', ARGV[3], 'l', int(level), 't', int(at), 'n', int(next_turn), 'a', int(last_ask), 'o', int(opens))
    if last then
        redis.call('HSET', KEYS[1], me, int(last[1]) .. ' ' .. int(last[2]) .. ' ' .. int(last[3]) .. ' ' .. int(last[4]) .. ' ' .. int(last[5]) .. ' ' .. int(last[6]))
    end
    for i = 1, #gone do
        if gone[i] ~= me or not last then redis.call('HDEL', KEYS[1], gone[i]) end
    end
    -- Kept until it is full again, and everybody's lease has ended.
    local full = (burst * per - level) / max(tokens, 1) + max(at - now, 0)
    redis.call('PEXPIRE', KEYS[1], int(min(ceil((full + lease) / 1000) + 60000, 4000000000000)))
end
if known and order <= known[1] then
    -- Too late to be granted anything; but the limit may be another one from now on.
    if changed then keep() end
    return {}
end
local function answer(granted, chunk, ask_after, alone_for)
    -- A look is no fill: time that is to be skipped later must not have made tokens because of it.
    local next_in, parts = 0, level
    if open_time() >= at then parts = min(level + (open_time() - at) * tokens, burst * per) end
    local there = max(floor(parts / per), 0)
    if there < 1 and tokens > 0 and burst > 0 then
        next_in = ceil((per - parts) / tokens) + max(opens - now, 0)
    end
    keep()
    return { order, granted, chunk, gateways(), ask_after, alone_for, next_in, there }
end

if not known and count() >= arg[19] then return answer(0, 1, lease, 0) end

if alone >= 0 then
    local since = max(now - alone, 0)
    if now >= opens and since >= last_ask and since >= opens then
        opens = now + settle
        at = max(at, opens)
    end
    if now < opens then return answer(0, chunk_of(0), 0, opens - now) end
    local beside = now - max(since, opens)
    local charged = min(ceil(alone_admitted * beside / max(alone, 1)), alone_admitted)
    refill(now, tokens, burst * per)
    level = max(level - charged * per, -burst * per)
end

local had = known and known[2] + known[6] or 0
local back = min(returned, had)
local spent = small() and min(max(had - back - held, 0), burst) or 0
fill()
level = min(level + back * per, burst * per)
local demand = { 0, 0 }
if known then
    local function add(sum, new) return sum - floor(sum / 16) + new end
    demand = { add(known[4], offered * 1000), add(known[5], max(now - known[3], 0)) }
end
gates[me] = { order, held, now, demand[1], demand[2], spent }
if alone < 0 then last_ask = now end

-- What is wanted, what is there, and no more than may be out altogether.
local chunk = chunk_of(rate(gates[me]))
local out = 0
for _, l in pairs(gates) do out = out + l[2] end
local everybody = bound(gateways())
local most = want
if not whole then most = min(want, max(chunk - held, 0), max(everybody - out, 0)) end
local granted = min(available(), most)
level = level - granted * per
gates[me][2] = held + granted

-- When it is worth to ask again.
local ask_after = 0
if not (want == 0 or (granted > 0 and available() >= max(min(everybody, floor(burst / 2)), 1))) then
    local turn = ceil(chunk * 1000000 / max(per_second, 1))
    local wanting = 0
    for _, l in pairs(gates) do if now - l[3] < 1000000 then wanting = wanting + 1 end end
    if granted == 0 and available() > 0 and small() then
        -- The one chunk is out: it is spent at once, which is told at once.
        ask_after = 0
    elseif wanting < arg[16] then
        ask_after = granted > 0 and 0 or turn
    else
        next_turn = min(max(next_turn, now) + turn, now + 1000000)
        ask_after = max(next_turn - now, turn)
    end
end
return answer(granted, chunk, ask_after, 0)
