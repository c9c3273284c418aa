;; Y = X · Wᵀ, with W unpacked four rows at a time into a scratch of float32, then met by all rows of X, two at a time.
(module
  (import "env" "memory" (memory 1))

  ;; A row of blocks of 32 numbers, each d · nibble + m: 16 bytes of nibbles, then d and m as float32.
  (func $unpack4 (param $from i32) (param $to i32) (param $blocks i32)
    (local $d v128) (local $m v128) (local $bytes v128) (local $half v128) (local $i i32)
    (loop $next
      (local.set $bytes (v128.load (local.get $from)))
      (local.set $d (v128.load32_splat offset=16 (local.get $from)))
      (local.set $m (v128.load32_splat offset=20 (local.get $from)))
      ;; the low nibbles are numbers 0 to 15, the high ones 16 to 31
      (local.set $half (v128.and (local.get $bytes) (i8x16.splat (i32.const 15))))
      (call $spread (local.get $half) (local.get $d) (local.get $m) (local.get $to))
      (local.set $half (i8x16.shr_u (local.get $bytes) (i32.const 4)))
      (call $spread (local.get $half) (local.get $d) (local.get $m) (i32.add (local.get $to) (i32.const 64)))
      (local.set $from (i32.add (local.get $from) (i32.const 24)))
      (local.set $to (i32.add (local.get $to) (i32.const 128)))
      (br_if $next (local.tee $blocks (i32.sub (local.get $blocks) (i32.const 1))))))

  ;; Sixteen bytes as sixteen float32, times d, plus m.
  (func $spread (param $bytes v128) (param $d v128) (param $m v128) (param $to i32)
    (local $low v128) (local $high v128)
    (local.set $low (i16x8.extend_low_i8x16_s (local.get $bytes)))
    (local.set $high (i16x8.extend_high_i8x16_s (local.get $bytes)))
    (v128.store (local.get $to)
      (f32x4.add (f32x4.mul (f32x4.convert_i32x4_s (i32x4.extend_low_i16x8_s (local.get $low))) (local.get $d)) (local.get $m)))
    (v128.store offset=16 (local.get $to)
      (f32x4.add (f32x4.mul (f32x4.convert_i32x4_s (i32x4.extend_high_i16x8_s (local.get $low))) (local.get $d)) (local.get $m)))
    (v128.store offset=32 (local.get $to)
      (f32x4.add (f32x4.mul (f32x4.convert_i32x4_s (i32x4.extend_low_i16x8_s (local.get $high))) (local.get $d)) (local.get $m)))
    (v128.store offset=48 (local.get $to)
      (f32x4.add (f32x4.mul (f32x4.convert_i32x4_s (i32x4.extend_high_i16x8_s (local.get $high))) (local.get $d)) (local.get $m))))

  ;; A row of blocks of 32 numbers, each d · byte: 32 bytes, then d as float32.
  (func $unpack8 (param $from i32) (param $to i32) (param $blocks i32)
    (local $d v128) (local $m v128)
    (loop $next
      (local.set $d (v128.load32_splat offset=32 (local.get $from)))
      (call $spread (v128.load (local.get $from)) (local.get $d) (local.get $m) (local.get $to))
      (call $spread (v128.load offset=16 (local.get $from)) (local.get $d) (local.get $m) (i32.add (local.get $to) (i32.const 64)))
      (local.set $from (i32.add (local.get $from) (i32.const 36)))
      (local.set $to (i32.add (local.get $to) (i32.const 128)))
      (br_if $next (local.tee $blocks (i32.sub (local.get $blocks) (i32.const 1))))))

  (func $sum (param $x v128) (result f32)
    (f32.add
      (f32.add (f32x4.extract_lane 0 (local.get $x)) (f32x4.extract_lane 1 (local.get $x)))
      (f32.add (f32x4.extract_lane 2 (local.get $x)) (f32x4.extract_lane 3 (local.get $x)))))

  ;; For one row of X, or two, and the four rows in the scratch: eight sums at a time.
  (func $meet (param $x i32) (param $x2 i32) (param $w i32) (param $y i32) (param $y2 i32) (param $bytes i32)
    (local $i i32) (local $a v128) (local $b v128) (local $r v128)
    (local $p i32) (local $q i32) (local $r0 i32) (local $r1 i32) (local $r2 i32) (local $r3 i32)
    (local $s0 v128) (local $s1 v128) (local $s2 v128) (local $s3 v128)
    (local $t0 v128) (local $t1 v128) (local $t2 v128) (local $t3 v128)
    (local.set $r0 (local.get $w))
    (local.set $r1 (i32.add (local.get $r0) (local.get $bytes)))
    (local.set $r2 (i32.add (local.get $r1) (local.get $bytes)))
    (local.set $r3 (i32.add (local.get $r2) (local.get $bytes)))
    (loop $next
      (local.set $a (v128.load (i32.add (local.get $x) (local.get $i))))
      (local.set $b (v128.load (i32.add (local.get $x2) (local.get $i))))
      (local.set $r (v128.load (i32.add (local.get $r0) (local.get $i))))
      (local.set $s0 (f32x4.add (local.get $s0) (f32x4.mul (local.get $a) (local.get $r))))
      (local.set $t0 (f32x4.add (local.get $t0) (f32x4.mul (local.get $b) (local.get $r))))
      (local.set $r (v128.load (i32.add (local.get $r1) (local.get $i))))
      (local.set $s1 (f32x4.add (local.get $s1) (f32x4.mul (local.get $a) (local.get $r))))
      (local.set $t1 (f32x4.add (local.get $t1) (f32x4.mul (local.get $b) (local.get $r))))
      (local.set $r (v128.load (i32.add (local.get $r2) (local.get $i))))
      (local.set $s2 (f32x4.add (local.get $s2) (f32x4.mul (local.get $a) (local.get $r))))
      (local.set $t2 (f32x4.add (local.get $t2) (f32x4.mul (local.get $b) (local.get $r))))
      (local.set $r (v128.load (i32.add (local.get $r3) (local.get $i))))
      (local.set $s3 (f32x4.add (local.get $s3) (f32x4.mul (local.get $a) (local.get $r))))
      (local.set $t3 (f32x4.add (local.get $t3) (f32x4.mul (local.get $b) (local.get $r))))
      (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 16))) (local.get $bytes))))
    (f32.store (local.get $y) (call $sum (local.get $s0)))
    (f32.store offset=4 (local.get $y) (call $sum (local.get $s1)))
    (f32.store offset=8 (local.get $y) (call $sum (local.get $s2)))
    (f32.store offset=12 (local.get $y) (call $sum (local.get $s3)))
    (f32.store (local.get $y2) (call $sum (local.get $t0)))
    (f32.store offset=4 (local.get $y2) (call $sum (local.get $t1)))
    (f32.store offset=8 (local.get $y2) (call $sum (local.get $t2)))
    (f32.store offset=12 (local.get $y2) (call $sum (local.get $t3))))

  ;; n rows of X of k numbers; m rows of W, a multiple of four, of `bits` 4 or 8.
  (func (export "product") (param $x i32) (param $n i32) (param $w i32) (param $m i32) (param $k i32) (param $bits i32)
      (param $scratch i32) (param $y i32)
    (local $j i32) (local $i i32) (local $row i32) (local $bytes i32) (local $blocks i32) (local $to i32) (local $last i32)
    (local.set $blocks (i32.shr_u (local.get $k) (i32.const 5)))
    (local.set $bytes (i32.shl (local.get $k) (i32.const 2)))
    (local.set $row (i32.mul (local.get $blocks) (select (i32.const 24) (i32.const 36) (i32.eq (local.get $bits) (i32.const 4)))))
    (loop $rows
      (local.set $i (i32.const 0))
      (local.set $to (local.get $scratch))
      (loop $four
        (if (i32.eq (local.get $bits) (i32.const 4))
          (then (call $unpack4 (local.get $w) (local.get $to) (local.get $blocks)))
          (else (call $unpack8 (local.get $w) (local.get $to) (local.get $blocks))))
        (local.set $w (i32.add (local.get $w) (local.get $row)))
        (local.set $to (i32.add (local.get $to) (local.get $bytes)))
        (br_if $four (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 4))))
      (local.set $i (i32.const 0))
      (loop $tokens
        ;; an odd last row meets itself
        (local.set $last (select (local.get $i) (i32.add (local.get $i) (i32.const 1))
          (i32.eq (i32.add (local.get $i) (i32.const 1)) (local.get $n))))
        (call $meet
          (i32.add (local.get $x) (i32.mul (local.get $i) (local.get $bytes)))
          (i32.add (local.get $x) (i32.mul (local.get $last) (local.get $bytes)))
          (local.get $scratch)
          (i32.add (local.get $y) (i32.shl (i32.add (i32.mul (local.get $i) (local.get $m)) (local.get $j)) (i32.const 2)))
          (i32.add (local.get $y) (i32.shl (i32.add (i32.mul (local.get $last) (local.get $m)) (local.get $j)) (i32.const 2)))
          (local.get $bytes))
        (br_if $tokens (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 2))) (local.get $n))))
      (br_if $rows (i32.lt_u (local.tee $j (i32.add (local.get $j) (i32.const 4))) (local.get $m)))))
)
