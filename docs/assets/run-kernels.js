// The loops over numbers that docs/page/torch/_kernels.py lets a page do: over Python's own memory, without a copy. Python
// gives the addresses of its arrays (docs/page/kernels.py), and has made the array that is filled here. Sums are added up
// with 64 bits; what is put into an array of 32-bit floats is rounded by that.

const KINDS = { f: Float32Array, d: Float64Array, B: Uint8Array, b: Int8Array, h: Int16Array, i: Int32Array, I: Uint32Array, q: BigInt64Array }

const UNARY = {
  neg: x => -x,
  abs: Math.abs,
  exp: Math.exp,
  expm1: Math.expm1,
  log: Math.log,
  sqrt: Math.sqrt,
  rsqrt: x => 1 / Math.sqrt(x),
  reciprocal: x => 1 / x,
  square: x => x * x,
  sin: Math.sin,
  cos: Math.cos,
  tanh: Math.tanh,
  sigmoid: x => 1 / (1 + Math.exp(-x)),
  relu: x => x <= 0 ? 0 : x,
  isnan: x => x !== x,
  logical_not: x => !x,
}

const BINARY = {
  add: (x, y) => x + y,
  sub: (x, y) => x - y,
  mul: (x, y) => x * y,
  div: (x, y) => x / y,
  maximum: (x, y) => x !== x || x > y ? x : y,
  minimum: (x, y) => x !== x || x < y ? x : y,
  eq: (x, y) => x === y,
  ne: (x, y) => x !== y,
  lt: (x, y) => x < y,
  le: (x, y) => x <= y,
  gt: (x, y) => x > y,
  ge: (x, y) => x >= y,
}

/** The kernels over the memory whose buffer `memory` gives: it is another one after the memory has grown. */
export function kernels(memory) {
  const views = {}
  const at = (kind, address, count) => {
    const buffer = memory()
    const view = views[kind]?.buffer === buffer ? views[kind] : (views[kind] = new KINDS[kind](buffer))
    const start = address / view.BYTES_PER_ELEMENT
    return view.subarray(start, start + count)
  }
  return {
    unary(name, kind, a, to_kind, to, count) {
      const f = UNARY[name], x = at(kind, a, count), out = at(to_kind, to, count)
      for (let i = 0; i < count; i++) out[i] = f(x[i])
    },
    binary(name, kind, a, b, to_kind, to, count) {
      const f = BINARY[name], x = at(kind, a, count), y = at(kind, b, count), out = at(to_kind, to, count)
      // The commonest are written out: a browser compiles them to a few instructions.
      if (name === "mul") for (let i = 0; i < count; i++) out[i] = x[i] * y[i]
      else if (name === "add") for (let i = 0; i < count; i++) out[i] = x[i] + y[i]
      else if (name === "sub") for (let i = 0; i < count; i++) out[i] = x[i] - y[i]
      else if (name === "div") for (let i = 0; i < count; i++) out[i] = x[i] / y[i]
      else for (let i = 0; i < count; i++) out[i] = f(x[i], y[i])
    },
    scalar(name, kind, a, number, reverse, to_kind, to, count) {
      const f = BINARY[name], x = at(kind, a, count), out = at(to_kind, to, count)
      for (let i = 0; i < count; i++) out[i] = reverse ? f(number, x[i]) : f(x[i], number)
    },
    matmul_rows(kind, a, b, to, n, k, m, count) {
      const left = at(kind, a, count * n * k), right = at(kind, b, count * k * m), out = at(kind, to, count * n * m)
      const rows = kind === "d" ? left : new Float64Array(left), columns = kind === "d" ? right : new Float64Array(right)
      for (let c = 0; c < count; c++) {
        const part = rows.subarray(c * n * k, (c + 1) * n * k)
        product(part, columns.subarray(c * k * m, (c + 1) * k * m), out, c * n * m, n, k, m)
      }
    },
    softmax_rows(kind, a, to, count, m) {
      const x = at(kind, a, count), out = at(kind, to, count), powers = new Float64Array(m)
      for (let start = 0; start < count; start += m) {
        let top = -Infinity, whole = 0
        for (let i = 0; i < m; i++) top = Math.max(top, x[start + i])  // NaN, if there is one
        if (!Number.isFinite(top)) top = NaN
        for (let i = 0; i < m; i++) whole += (powers[i] = Math.exp(x[start + i] - top))
        for (let i = 0; i < m; i++) out[start + i] = powers[i] / whole
      }
    },
    sum_rows(kind, a, to, count, m) {
      const x = at(kind, a, count * m), out = at(kind, to, count)
      for (let row = 0, i = 0; row < count; row++) {
        let sum = 0
        for (const end = i + m; i < end; i++) sum += x[i]
        out[row] = sum
      }
    },
    /** The sums along an axis of m numbers that stand `inner` apart. */
    sum_along(kind, a, to, count, m, inner) {
      const x = at(kind, a, count), out = at(kind, to, count / m), sums = new Float64Array(inner)
      for (let i = 0, row = 0; i < count; row += inner) {
        sums.fill(0)
        for (let k = 0; k < m; k++) for (let j = 0; j < inner; j++, i++) sums[j] += x[i]
        out.set(sums, row)
      }
    },
    logsumexp_along(kind, a, to, count, m, inner) {
      const x = at(kind, a, count), out = at(kind, to, count / m)
      for (let block = 0, row = 0; block < count; block += m * inner)
        for (let start = block; start < block + inner; start++, row++) {
          let top = -Infinity, sum = 0
          const end = start + m * inner
          for (let i = start; i < end; i += inner) top = Math.max(top, x[i])
          for (let i = start; i < end; i += inner) sum += Math.exp(x[i] - top)
          out[row] = Number.isFinite(top) ? top + Math.log(sum) : top
        }
    },
    norm_rows(kind, a, to, scales, count, m, eps) {
      const x = at(kind, a, count), out = at(kind, to, count), factors = at(kind, scales, count / m)
      for (let start = 0, row = 0; start < count; start += m, row++) {
        let sum = 0, squares = 0
        for (let i = start; i < start + m; i++) sum += x[i]
        const middle = sum / m
        for (let i = start; i < start + m; i++) squares += (x[i] - middle) ** 2
        const factor = 1 / Math.sqrt(squares / m + eps)
        factors[row] = factor
        for (let i = start; i < start + m; i++) out[i] = (x[i] - middle) * factor
      }
    },
    add_rows(kind, whole, length, places, count, rows, m) {
      const all = at(kind, whole, length), place = at("i", places, count), more = at(kind, rows, count * m)
      for (let row = 0, i = 0; row < count; row++)
        for (let to = place[row] * m, end = to + m; to < end; to++, i++) all[to] += more[i]
    },
    /** `places` are the sizes of `axes` axes, then their strides. */
    strided(kind, data, length, places, axes, start, to, count) {
      const x = at(kind, data, length), out = at(kind, to, count), plan = at("i", places, 2 * axes)
      const sizes = Array.from(plan.subarray(0, axes)), steps = Array.from(plan.subarray(axes))
      const m = sizes.pop(), step = steps.pop(), index = sizes.map(() => 0)
      for (let i = 0, from = start; i < count; ) {
        for (let j = 0, p = from; j < m; j++, p += step) out[i++] = x[p]
        for (let axis = sizes.length - 1; axis >= 0; axis--) {
          from += steps[axis]
          if (++index[axis] < sizes[axis]) break
          from -= steps[axis] * sizes[axis]
          index[axis] = 0
        }
      }
    },
    /** Where an address is 0, its number stands for all. */
    choose(condition, kind, a, b, number, to, count) {
      const c = at("B", condition, count), out = at(kind, to, count)
      const x = a && at(kind, a, count), y = b && at(kind, b, count)
      if (a && b) for (let i = 0; i < count; i++) out[i] = c[i] ? x[i] : y[i]
      else if (a) for (let i = 0; i < count; i++) out[i] = c[i] ? x[i] : number
      else for (let i = 0; i < count; i++) out[i] = c[i] ? number : y[i]
    },
    normal_blocks(words, mean, std, to, count) {
      const w = at("I", words, count), out = at("f", to, count)
      const share = i => (w[i] & 0xffffff) * 2 ** -24
      for (let start = 0; start < count; start += 16)
        for (let i = start; i < start + 8; i++) {
          const radius = Math.sqrt(-2 * Math.log(1 - share(i))), angle = 2 * Math.PI * share(i + 8)
          out[i] = radius * Math.cos(angle) * std + mean
          out[i + 8] = radius * Math.sin(angle) * std + mean
        }
    },
  }
}

/** A product of matrices of 64-bit floats, four rows by four columns at a time; what is left over, one by one. */
function product(a, b, out, start, n, k, m) {
  const rows = n - n % 4, columns = m - m % 4
  for (let i = 0; i < rows; i += 4) {
    const a0 = i * k, a1 = a0 + k, a2 = a1 + k, a3 = a2 + k
    for (let j = 0; j < columns; j += 4) {
      let s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0
      let s20 = 0, s21 = 0, s22 = 0, s23 = 0, s30 = 0, s31 = 0, s32 = 0, s33 = 0
      for (let l = 0, at = j; l < k; l++, at += m) {
        const x0 = a[a0 + l], x1 = a[a1 + l], x2 = a[a2 + l], x3 = a[a3 + l]
        const y0 = b[at], y1 = b[at + 1], y2 = b[at + 2], y3 = b[at + 3]
        s00 += x0 * y0, s01 += x0 * y1, s02 += x0 * y2, s03 += x0 * y3
        s10 += x1 * y0, s11 += x1 * y1, s12 += x1 * y2, s13 += x1 * y3
        s20 += x2 * y0, s21 += x2 * y1, s22 += x2 * y2, s23 += x2 * y3
        s30 += x3 * y0, s31 += x3 * y1, s32 += x3 * y2, s33 += x3 * y3
      }
      const to = start + i * m + j
      out[to] = s00, out[to + 1] = s01, out[to + 2] = s02, out[to + 3] = s03
      out[to + m] = s10, out[to + m + 1] = s11, out[to + m + 2] = s12, out[to + m + 3] = s13
      out[to + 2 * m] = s20, out[to + 2 * m + 1] = s21, out[to + 2 * m + 2] = s22, out[to + 2 * m + 3] = s23
      out[to + 3 * m] = s30, out[to + 3 * m + 1] = s31, out[to + 3 * m + 2] = s32, out[to + 3 * m + 3] = s33
    }
  }
  for (let i = 0; i < n; i++)
    for (let j = i < rows ? columns : 0; j < m; j++) {
      let sum = 0
      for (let l = 0; l < k; l++) sum += a[i * k + l] * b[l * m + j]
      out[start + i * m + j] = sum
    }
}

/** Have Python's torch do its large loops here. */
export function quicken(pyodide) {
  const small = pyodide.runPython("from array import array\narray('f', [0])")
  let buffer = null
  const memory = () => {
    if (buffer?.byteLength) return buffer
    const borrowed = small.getBuffer("f32")
    buffer = borrowed.data.buffer
    borrowed.release()
    return buffer
  }
  const { register } = pyodide.pyimport("kernels")
  register(kernels(memory), Object.keys(UNARY).join(" "), Object.keys(BINARY).join(" "))
}
